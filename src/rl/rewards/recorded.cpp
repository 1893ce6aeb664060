#include "src/rl/rewards/recorded.h"

#include "src/core/digest/hash.h"
#include "src/rl/trajectory_json.h"

namespace temper {
namespace {

std::string identity(const Trajectory& t) {
  Digest digest;
  const auto add = [&](const std::vector<int32_t>& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    digest.update(&count, sizeof count);
    digest.update(tokens.data(), count * static_cast<int64_t>(sizeof(int32_t)));
  };
  add(t.prompt_tokens);
  add(t.response.tokens);
  add({t.sample});
  return digest.hex();
}

}  // namespace

void RecordedVerdicts::add_file(const std::string& path) {
  for (Group& group : read_rollouts(path, {}))
    for (Trajectory& t : group.samples) parts_.emplace(identity(t), std::move(t.reward_parts));
}

std::optional<Verdict> RecordedVerdicts::find(const Trajectory& t, const std::string& name) const {
  if (parts_.empty()) return {};
  const auto known = parts_.find(identity(t));
  if (known == parts_.end()) return {};
  Verdict verdict;
  for (const auto& [part, value] : known->second) {
    if (part == name) verdict.value = value;
    if (part.starts_with(name + "/")) verdict.parts.emplace_back(part.substr(name.size() + 1), value);
  }
  return verdict;
}

}  // namespace temper
