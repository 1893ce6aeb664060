#pragma once
// A short run through the program with its roles on ranks of a given placement, and what of it must not
// depend on where they are.

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace temper {

/// The KL and entropy terms give gradients although a random model never earns a reward.
inline const char* kPlacedConfig = R"([run]
name = "whole"
steps = 5
threads = 1
[model]
path = "model"
[algorithm]
kl_coef = 0.1
entropy_coef = 0.01
[rollout]
prompts_per_step = 5
samples_per_prompt = 2
max_new_tokens = 8
[train]
samples_per_update = 6
last_partial = "keep"
[optimizer]
lr = 1e-3
schedule = "cosine"
[data]
train = "data.jsonl"
chat = false
[reward]
functions = ["arithmetic"]
[checkpoint]
every = 1
keep = 20
export_hf_every = 5
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

class PlacedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.write("run.toml", kPlacedConfig);
    std::string data;
    for (int i = 0; i < 13; ++i)
      data += fmt::format("{{\"prompt\":\"What is {} plus {}?\",\"answer\":\"{}\"}}\n", i, 3 * i, 4 * i);
    program_.write("data.jsonl", data);
    ASSERT_EQ(program_.init_model("model"), 0) << program_.output();
  }

  int train(const Placement& placement, int lag, const std::string& name,
            const std::string& more = "") const {
    return program_.run_ranks(placement.ranks, arguments(placement, lag, name, more));
  }
  static std::string arguments(const Placement& placement, int lag, const std::string& name,
                               const std::string& more) {
    return fmt::format("train run.toml run.name={} run.max_policy_lag={} {} {}", name, lag, placement.roles,
                       more);
  }
  std::string output() const { return program_.output(); }
  std::string metrics(const std::string& name) const { return program_.fixed_metrics(name); }
  static std::string rollout_file(const std::string& name, int step) {
    return fmt::format("runs/{}/rollouts/step-{:06d}.jsonl", name, step);
  }
  std::string rollouts(const std::string& name, int step) const {
    return program_.read(rollout_file(name, step));
  }
  std::string weights(const std::string& name, int step = kSteps) const {
    return program_.read(fmt::format("runs/{}/export/step-{:06d}/model.safetensors", name, step));
  }
  bool has_file(const std::string& name) const { return path_exists(program_.path(name)); }

  void expect_same_run(const std::string& a, const std::string& b, int steps = kSteps) const {
    for (int step = 1; step <= steps; ++step)
      EXPECT_TRUE(rollouts(a, step) == rollouts(b, step))
          << "rollouts of step " << step << ": " << a << ", " << b;
    EXPECT_EQ(metrics(a), metrics(b)) << a << ", " << b;
    EXPECT_TRUE(weights(a, steps) == weights(b, steps)) << "weights: " << a << ", " << b;
  }

  std::filesystem::path run(const std::string& name) const { return program_.path("runs/" + name); }
  /// A copy of the whole run of `steps` steps as a crash after `step` leaves it.
  void copy_until(const std::string& from, const std::string& name, int step, int steps = kSteps) const {
    std::filesystem::copy(run(from), run(name), std::filesystem::copy_options::recursive);
    for (int s = step + 1; s <= steps; ++s)
      std::filesystem::remove_all(run(name) / "checkpoints" / fmt::format("step-{:06d}", s));
  }

  Program program_;
};

}  // namespace temper
