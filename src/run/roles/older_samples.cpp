#include "src/run/roles/older_samples.h"

#include <limits>

#include "src/rl/importance.h"
#include "src/rl/sampled_with.h"

namespace temper {

void add_old_logprobs(const RoleParts& parts, std::vector<Group>& groups, int64_t step, bool one_update,
                      const ScoreSamples& score) {
  const AlgorithmConfig& algorithm = parts.task.config().algorithm;
  Journal& journal = parts.journal;
  std::vector<Trajectory*> old;
  TokensByWeights share;
  for (Group& g : groups)
    for (Trajectory& t : g.samples) {
      const TokensByWeights of = off_policy_tokens(t, step - 1);
      share.all += of.all;
      share.other += of.other;
      if (of.other > 0) old.push_back(&t);
    }
  if (share.all > 0)
    journal.set("policy/off_policy_share", static_cast<double>(share.other) / static_cast<double>(share.all));
  const RejectionRule rejection{algorithm.reject_mean_k3, algorithm.reject_token_below};
  if (rejection.on()) journal.set("policy/rejected_share", 0);
  if (algorithm.tis_cap == 0 || old.empty()) return;
  const PhaseTimer timer(journal, "old_log_prob");
  const std::vector<const Trajectory*> view(old.begin(), old.end());
  std::vector<std::vector<double>> own(old.size());
  const bool own_pass = !one_update || rejection.on();
  if (own_pass) own = score(view);
  for (size_t i = 0; i < old.size(); ++i) {
    Trajectory& t = *old[i];
    t.old_logprobs = t.response.logprobs;
    size_t r = 0;
    for (const auto& [version, tokens] : t.response.versions)
      for (int32_t n = 0; n < tokens; ++n, ++r)
        if (version != step - 1)
          t.old_logprobs[r] = own_pass ? own[i][r] : std::numeric_limits<double>::quiet_NaN();
  }
  if (!rejection.on()) return;
  const auto all = static_cast<double>(in_order(groups).size());
  journal.set("policy/rejected_share", static_cast<double>(reject(groups, rejection)) / all);
}

}  // namespace temper
