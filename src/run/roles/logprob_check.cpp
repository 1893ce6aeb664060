#include "src/run/roles/logprob_check.h"

#include <algorithm>

#include "src/core/log.h"

namespace temper {
namespace {

std::string warning(const LogprobDifference& d, int64_t step, int rank) {
  return fmt::format(
      "step {}: rank {}: prompt {}, group {}, sample {}: response token {} was sampled with log-prob {} and "
      "has {} where it is trained, under the same weights; {} such tokens on this rank. The two are equal to "
      "the bit on sound machines: a device or memory computes wrong (try other nodes), or this is a bug",
      step, rank, d.data_position, d.group, d.sample, d.token, d.sampled, d.own, d.tokens);
}

}  // namespace

void warn_of_unknown_versions(const RunTask& task, const Comm& dp, std::span<const Trajectory* const> all,
                              int64_t step) {
  int64_t unknown = 0;
  for (const Trajectory* t : all) unknown += t->response.versions.empty() && !t->response.tokens.empty();
  if (unknown > 0 && task.config().algorithm.tis_cap > 0 && dp.rank() == 0)
    log::warn(
        "step {}: algorithm.tis_cap needs versions of the weights, and {} of {} responses of {} have none "
        "(step, policy_version): the ratio of their tokens starts at their logprobs",
        step, unknown, all.size(), task.replay_files[static_cast<size_t>(step - 1)]);
}

std::string warn_of_differences(const UpdateStats& first, int64_t step, int rank, Comm& dp) {
  if (first.logprob_diff_max == 0) return "";  // on every rank
  const bool seen = first.difference && first.difference->version == step - 1;
  const std::string mine = seen ? warning(*first.difference, step, rank) : "";
  if (seen) log::warn("{}", mine);
  const std::vector<std::string> all = dp.all_gather(mine, "log-probs that differ, copied");
  for (size_t other = 1; dp.rank() == 0 && other < all.size(); ++other)
    if (!all[other].empty()) log::warn("{}", all[other]);
  const auto found =
      std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  return found == all.end() ? "" : *found;
}

}  // namespace temper
