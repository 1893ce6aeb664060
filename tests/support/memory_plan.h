#pragma once
// The table of `check` is what a run takes: the peak resident memory that Linux reports for each rank over a
// whole run, saves and exports included, is within 3 % or 16 MiB of the rank's largest row.

#include <sys/resource.h>

#include "tests/support/run_fixture.h"

namespace temper {

/// 30 MB of fp32 weights.
inline constexpr const char* kModel =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256,
  "intermediate_size": 768, "num_hidden_layers": 7, "num_attention_heads": 8, "num_key_value_heads": 4,
  "head_dim": 32, "vocab_size": 6400, "max_position_embeddings": 256, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2})";

/// Half of its parameters are experts.
inline constexpr const char* kExperts =
    R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 256, "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2,
  "norm_topk_prob": true, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
  "head_dim": 32, "vocab_size": 6400, "max_position_embeddings": 256, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2})";

/// Three layers with states to one with keys and values.
inline constexpr const char* kHybrid =
    R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
  "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "hidden_act": "silu",
  "full_attention_interval": 4, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "initializer_range": 0.2, "eos_token_id": 2,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}})";

/// Responses are as long as they may be, so that batches are as full as the plan says.
inline constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 2
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 4
rollout.max_prompt_tokens = 16
rollout.max_new_tokens = 56
rollout.min_new_tokens = 56
rollout.ignore_eos = true
train.samples_per_update = 16
train.max_tokens_per_microbatch = 1024
checkpoint.every = 1
checkpoint.export_hf_every = 1
)";

struct MemoryCase {
  const char* name;
  int ranks;
  const char* keys;
};
inline constexpr const char* kMeasure = "--measure";  // FILE COMMAND...

/// Runs a command and writes the most memory that it had, in bytes, to FILE with the number of its rank.
inline int measure(int argc, char** argv) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(argv[3], argv + 3);
    std::_Exit(127);
  }
  int status = 0;
  struct rusage usage {};
  if (argc < 4 || child < 0 || ::wait4(child, &status, 0, &usage) != child) return 1;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  write_file_atomic(std::string(argv[2]) + (rank ? rank : "0"),
                    fmt::format("{}", int64_t{usage.ru_maxrss} * 1024));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

class MemoryPlan : public RunFixture {
 protected:
  void SetUp() override {
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(64));
    ASSERT_EQ(program_.init_model("model", kModel), 0) << output();
    ASSERT_EQ(program_.init_model("experts", kExperts), 0) << output();
    ASSERT_EQ(program_.init_model("hybrid", kHybrid), 0) << output();
  }

  /// Largest row of each rank.
  std::vector<int64_t> predicted(const MemoryCase& c) const {
    EXPECT_EQ(program_.run(fmt::format("check run.toml --json --ranks {} {}", c.ranks, c.keys)), 0)
        << output();
    std::vector<int64_t> peaks(static_cast<size_t>(c.ranks), 0);
    const Json report = parse_json(output(), "check");
    for (const Json& row : report["memory"]) {
      int64_t& peak = peaks[row["rank"].get<size_t>()];
      peak = std::max(peak, row["host_bytes"].get<int64_t>());
    }
    return peaks;
  }

  int train(const MemoryCase& c) const {
    const std::string arguments = fmt::format("train run.toml run.name={} {}", c.name, c.keys);
    const std::string self = std::filesystem::canonical("/proc/self/exe").string();
    std::string command = program_.mpirun(c.ranks, arguments);
    const std::string measured = fmt::format("{} {} peak.{}. {}", self, kMeasure, c.name, program_.temper());
    return program_.shell(
        command.replace(command.find(program_.temper()), program_.temper().size(), measured));
  }
  void compare(const MemoryCase& c) const {
    SCOPED_TRACE(c.name);
    constexpr int64_t kSlack = int64_t{16} << 20;
    const std::vector<int64_t> plan = predicted(c);
    ASSERT_EQ(train(c), 0) << output();
    for (int rank = 0; rank < c.ranks; ++rank) {
      const int64_t planned = plan[static_cast<size_t>(rank)];
      const int64_t taken = std::stoll(program_.read(fmt::format("peak.{}.{}", c.name, rank)));
      std::printf("%-10s rank %d: planned %6.1f MiB, taken %6.1f MiB\n", c.name, rank,
                  static_cast<double>(planned) / 1048576, static_cast<double>(taken) / 1048576);
      EXPECT_LE(std::abs(taken - planned), std::max(kSlack, planned * 3 / 100))
          << "rank " << rank << ": planned " << planned << ", taken " << taken;
    }
  }
};

/// The main of a program of such tests, which measures runs by itself.
inline int run_memory_tests(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == kMeasure) return measure(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace temper
