#include "src/rl/advantages/advantage.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/rl/advantages/statistics.h"

namespace temper {
namespace {

void train_nothing(Trajectory& t) {
  t.advantage = 0;
  t.advantages.clear();
  std::fill(t.response.mask.begin(), t.response.mask.end(), uint8_t{0});
}

void check_finite(const Trajectory& t, double value, const char* name) {
  if (std::isfinite(value)) return;
  fail(Exit::numerics,
       {.what = fmt::format("the {} of a response is not finite", name),
        .where = fmt::format("group {}, sample {}", t.group, t.sample),
        .why = fmt::format("reward {}, raw reward {}, {} {}", t.reward, t.raw_reward, name, value),
        .fix = "bound the rewards (reward.functions, weights) or lower algorithm.kl_coef"});
}

/// The advantage of the response: the mean over its counted tokens.
void take_mean(Trajectory& t) {
  double sum = 0;
  for (const double a : t.advantages) sum += a;
  t.advantage = sum / static_cast<double>(std::max<int64_t>(t.counted_tokens(), 1));
}

/// A fork has the advantage of its session, whose first trajectory stands before it.
void follow_sessions(Group& group, bool dropped) {
  const Trajectory* first = nullptr;
  for (Trajectory& t : group.samples) {
    if (!t.is_fork()) {
      first = &t;
      continue;
    }
    CHECK(first && first->sample == t.sample, "fork {} of sample {} has no session before it",
          t.session->fork, t.sample);
    t.advantage = first->advantage;
    if (first->excluded || dropped) train_nothing(t);
  }
}

}  // namespace

void fill_advantages(const AdvantageTraits& row, std::span<Group> groups, const AdvantageOptions& options) {
  std::vector<Rewarded> all;
  std::vector<bool> dropped_groups;
  for (Group& group : groups) {
    Rewarded rewarded;
    for (Trajectory& t : group.samples) {
      check_finite(t, t.reward, "reward");
      t.advantages.clear();
      if (t.is_fork()) continue;
      t.excluded ? train_nothing(t) : rewarded.push_back(&t);
    }
    const bool dropped =
        rewarded.size() == 1 && options.single_group == SingleGroup::drop && row.lone != LoneSample::itself;
    dropped_groups.push_back(dropped);
    if (dropped)
      train_nothing(*rewarded.front());
    else if (!rewarded.empty())
      all.push_back(std::move(rewarded));
  }
  methods::row_of(kAdvantageFunctions, row.name).fill(all, options);
  for (Group& group : groups)
    for (Trajectory& t : group.samples) {
      if (!t.advantages.empty()) take_mean(t);
      check_finite(t, t.advantage, "advantage");
    }
  for (size_t i = 0; i < groups.size(); ++i) follow_sessions(groups[i], dropped_groups[i]);
}

void subtract_teacher(std::span<Group> groups, double coefficient) {
  for (Group& group : groups)
    for (Trajectory& t : group.samples) {
      const size_t n = t.response.mask.size();
      if (t.teacher_logprobs.empty()) continue;
      CHECK(t.teacher_logprobs.size() == n && t.response.logprobs.size() == n,
            "teacher of group {}, sample {}: {} tokens, {} log-probs, {} of the teacher", t.group, t.sample,
            n, t.response.logprobs.size(), t.teacher_logprobs.size());
      std::vector<double> advantages(n);
      for (size_t i = 0; i < n; ++i)
        if (t.response.mask[i])
          advantages[i] = t.advantage_of(i) - coefficient * (t.response.logprobs[i] - t.teacher_logprobs[i]);
      t.advantages = std::move(advantages);
      take_mean(t);
      check_finite(t, t.advantage, "advantage with that of the teacher");
    }
}

void subtract_kl_from_rewards(std::span<Group> groups, KlEstimator estimator, double coefficient,
                              const KlLimits& limits) {
  for (Group& group : groups) {
    Trajectory* of = nullptr;  // whose reward it is: that of the session
    for (Trajectory& t : group.samples) {
      if (!t.is_fork()) of = &t;
      if (t.excluded) continue;
      check_kl_inputs(t);
      double kl = 0;
      for (size_t i = 0; i < t.response.tokens.size(); ++i) {
        if (t.response.mask[i])
          kl += kl_term(estimator, t.response.logprobs[i], t.ref_logprobs[i], limits).value;
      }
      of->reward -= coefficient * kl;
      check_finite(*of, of->reward, "reward");
    }
  }
}

void mask_truncated(std::span<Group> groups) {
  for (Group& group : groups)
    for (Trajectory& t : group.samples)
      if (t.response.finish == FinishReason::length)
        std::fill(t.response.mask.begin(), t.response.mask.end(), uint8_t{0});
}

}  // namespace temper
