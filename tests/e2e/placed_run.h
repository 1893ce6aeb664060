#pragma once
// A short run through the program with its roles on ranks of a given placement, and what of it must not
// depend on where they are.

#include "tests/support/run_fixture.h"

namespace temper {

/// The KL and entropy terms give gradients although a random model never earns a reward.
inline const char* kPlacedConfig = R"(
run.name = "whole"
run.steps = 5
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 5
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 8
train.samples_per_update = 6
train.last_partial = "keep"
optimizer.schedule = "cosine"
checkpoint.every = 1
checkpoint.keep = 20
checkpoint.export_hf_every = 5
)";
inline constexpr int kSteps = 5;

struct Placement {
  std::string name;
  int ranks;
  std::string roles;  // as on the command line
};
inline const Placement kColocated{"colocated", 2, ""};
inline const Placement kDisjoint{
    "disjoint", 4, R"(roles.rollout.ranks='"0"' roles.reference.ranks='"1"' roles.trainer.ranks='"2-3"')"};
inline const Placement kOverlapping{
    "overlapping", 4,
    R"(roles.rollout.ranks='"0-2"' roles.reference.ranks='"3"' roles.trainer.ranks='"1,3"')"};

class PlacedRun : public RunFixture {
 protected:
  void SetUp() override { prepare(kPlacedConfig, sums(13)); }

  int train(const Placement& placement, int lag, const std::string& name,
            const std::string& more = "") const {
    return program_.run_ranks(placement.ranks, arguments(placement, lag, name, more));
  }
  struct Run {
    Placement placement;
    int lag;
    std::string name, more = {};
  };
  /// Does what train() does for each, by one start of as many ranks.
  int train_each(const std::vector<Run>& runs) const {
    std::vector<RanksRun> all;
    for (const Run& r : runs)
      all.push_back({r.placement.ranks, arguments(r.placement, r.lag, r.name, r.more)});
    return run_each(all);
  }
  static std::string arguments(const Placement& placement, int lag, const std::string& name,
                               const std::string& more) {
    return fmt::format("train run.toml run.name={} run.max_policy_lag={} {} {}", name, lag, placement.roles,
                       more);
  }
  std::string weights(const std::string& name, int step = kSteps) const {
    return exported_weights(name, step);
  }
  void expect_same_run(const std::string& a, const std::string& b, int steps = kSteps) const {
    for (int step = 1; step <= steps; ++step)
      EXPECT_TRUE(rollouts(a, step) == rollouts(b, step))
          << "rollouts of step " << step << ": " << a << ", " << b;
    EXPECT_EQ(metrics(a), metrics(b)) << a << ", " << b;
    EXPECT_TRUE(weights(a, steps) == weights(b, steps)) << "weights: " << a << ", " << b;
  }
  void copy_until(const std::string& from, const std::string& name, int step, int steps = kSteps) const {
    RunFixture::copy_until(from, name, step, steps);
  }
};

}  // namespace temper
