#pragma once
// Small models of a kind learn the demo's task: from its careless teacher, then by GRPO. LEARN_DEVICE=cuda
// has the same runs on GPUs, which ranks share where there are fewer.

#include <cstdlib>

#include "tests/support/run_fixture.h"

namespace temper {

class DemoRuns : public RunFixture {
 protected:
  void SetUp() override {
    if (device() == "cuda") ::unsetenv("CUDA_VISIBLE_DEVICES");  // Program hides them
    const std::string root = std::filesystem::current_path().string();
    ASSERT_EQ(
        program_.shell(fmt::format("ln -s {0}/conf conf && {0}/tools/demo_data.sh runs/demo/data", root)), 0)
        << output();
  }

  /// What the careless teacher has made of a new model of conf/models/demo-KIND.json.
  std::string taught(const std::string& kind, int seed) const {
    const std::string name = fmt::format("sft{}", seed);
    EXPECT_EQ(program_.run(fmt::format("init --config conf/models/demo-{}.json --tokenizer conf/demo "
                                       "--out {}-model --seed {}",
                                       kind, name, seed)),
              0)
        << output();
    train(fmt::format("demo_{}_sft", kind), name, seed, name + "-model", "");
    return fmt::format("runs/{}/export/step-000700", name);
  }
  /// The accuracy on held-out problems in the end. On policy, rollouts have the bits of the trainer in every
  /// step.
  double learned(const std::string& kind, const std::string& name, int seed, const std::string& start,
                 bool on_policy, const std::string& keys) const {
    train(fmt::format("demo_{}_grpo", kind), name, seed, start, keys);
    double accuracy = 0;
    int compared = 0;
    for (const Json& line : program_.metrics(name)) {
      accuracy = line.value("val/heldout/score/mean", accuracy);
      if (!on_policy || !line.contains("actor/rollout_logprob_diff_max")) continue;
      EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << name << " " << line.at("step");
      ++compared;
    }
    EXPECT_EQ(compared > 0, on_policy) << name;
    EXPECT_FALSE(logged(name, "under the same weights")) << name;
    std::fprintf(stderr, "%s: held-out accuracy %.3f\n", name.c_str(), accuracy);
    return accuracy;
  }

 private:
  static std::string device() {
    const char* const named = std::getenv("LEARN_DEVICE");
    return named != nullptr ? named : "cpu";
  }
  void train(const std::string& config, const std::string& name, int seed, const std::string& model,
             const std::string& keys) const {
    const std::string command = fmt::format(
        "train conf/{}.toml run.name={} run.seed={} model.path={} run.device={} log.samples_per_step=0 {}",
        config, name, seed, model, device(), keys + (device() == "cuda" ? " cluster.shared_gpus=allow" : ""));
    EXPECT_EQ(program_.run_ranks(2, command), 0) << output();
  }
};

}  // namespace temper
