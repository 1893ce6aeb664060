#include "src/rl/sampled_with.h"

#include <algorithm>

namespace temper {

TokensByWeights off_policy_tokens(const Trajectory& t, int64_t version) {
  TokensByWeights count;
  for (const auto& [sampled_with, tokens] : t.response.versions) {
    count.all += tokens;
    if (sampled_with != version) count.other += tokens;
  }
  return count;
}

std::optional<int64_t> version_of(const Response& response, int64_t token) {
  int64_t end = 0;
  for (const auto& [version, tokens] : response.versions)
    if (end += tokens; token < end) return version;
  return std::nullopt;
}

int64_t oldest_version(std::span<const Trajectory* const> all, int64_t current) {
  int64_t oldest = current;
  for (const Trajectory* t : all)
    for (const auto& [version, tokens] : t->response.versions) oldest = std::min(oldest, version);
  return oldest;
}

}  // namespace temper
