#pragma once
// What tests of whole runs on a GPU share.

#include <functional>

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {

/// Heads for the kernels of tensor cores, and a vocabulary that the tokenizer has.
inline constexpr const char* kTensorCores = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 6400, "max_position_embeddings": 512,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.1,
  "eos_token_id": 2})";

class GpuRunFixture : public RunFixture {
 protected:
  /// Starts the run or goes on with it, for a step and some milliseconds; the process that is `told` then
  /// gets SIGUSR1, and all save and leave before its last step.
  void stop_inside_of_a_step(const std::string& command, const std::string& run, int64_t last_step,
                             int milliseconds, const std::function<pid_t(Background&)>& told) const {
    Background job(program_, command);
    const int64_t before = steps_done(run);
    ASSERT_TRUE(job.until([&] { return steps_done(run) > before; })) << output();
    ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
    ::kill(told(job), SIGUSR1);
    EXPECT_EQ(job.wait(), static_cast<int>(Exit::retry)) << milliseconds << " ms: " << output();
    EXPECT_LT(steps_done(run), last_step) << "the run was over before the signal";
  }
  /// The GPU memory of each phase is within 5 % or 32 MiB of the plan, without what the driver and trials of
  /// products take: a run does not count them. The workspace of products it counts.
  void expect_planned_memory(const std::string& name, const std::string& keys, int least_phases) const {
    EXPECT_EQ(program_.run("check run.toml --json " + keys), 0) << output();
    const Json report = parse_json(output(), "check");
    const Json last = program_.metrics(name).back();
    constexpr int64_t kWorkspace = int64_t{33} << 20;  // in the plan's "context"
    int phases = 0;
    for (const Json& row : report["memory"]) {
      const std::string phase = row["phase"], taken = "perf/peak_gb/" + phase + "/device";
      if (!last.contains(taken)) continue;
      ++phases;
      const Json& parts = row["parts"];
      const int64_t others =
          parts.at("context").get<int64_t>() - kWorkspace + parts.at("product_trials").get<int64_t>();
      const double planned = static_cast<double>(row["device_bytes"].get<int64_t>() - others) / (1 << 30),
                   held = last.at(taken).get<double>();
      std::printf("%s, %-10s planned %.3f GiB, taken %.3f GiB\n", name.c_str(), phase.c_str(), planned, held);
      EXPECT_NEAR(held, planned, std::max(0.05 * planned, 32.0 / 1024)) << phase;
    }
    EXPECT_GE(phases, least_phases) << last.dump();
  }
};

}  // namespace temper
