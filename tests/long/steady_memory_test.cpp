// A long run does not grow: of 300 steps of one shape (GRPO on two ranks; validation, a checkpoint and an
// export every ten) the resident memory of each rank is flat after step 20, when each kind of work has been
// done twice.

#include <map>

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr int kSteps = 300, kWindow = 20;

/// A megabyte is 1 % of a rank: MPI adds half a one to its queues once, at a step that timing chooses.
const char* kModel = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 128,
  "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "vocab_size": 6400, "max_position_embeddings": 256, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2})";

/// Every prompt and every response is as long as all others.
const char* kConfig = R"(
run.name = "run"
run.steps = 300
rollout.prompts_per_step = 8
rollout.samples_per_prompt = 4
rollout.max_prompt_tokens = 24
rollout.max_new_tokens = 24
rollout.ignore_eos = true
train.max_tokens_per_microbatch = 512
algorithm.kl_coef = 0.1
validation.data = "data.jsonl"
validation.every = 10
checkpoint.every = 10
checkpoint.export_hf_every = 10
)";

/// kB; 0 when the process is gone.
int64_t resident_kb(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  return 0;
}

/// The heap gives back at once what is freed: what it keeps would hide megabytes that are never freed.
const char* kGiveBack =
    "env GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072 ";

/// Largest of each window of steps that was seen, by rank.
using Peaks = std::map<pid_t, std::map<int, int64_t>>;

class SteadyMemory : public RunFixture {
 protected:
  int steps_done() const {
    std::ifstream file(program_.path("runs/run/metrics.jsonl"));
    return static_cast<int>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }

  /// Looks at the ranks until the run has ended; the last step is the end of the process, too.
  Peaks watch(Background& run) const {
    Peaks peaks;
    while (run.until([&] {
      const int step = steps_done();
      for (const pid_t rank : run.children()) {
        int64_t& peak = peaks[rank][step / kWindow];
        peak = std::max(peak, resident_kb(rank));
      }
      return true;
    }))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return peaks;
  }
};

TEST_F(SteadyMemory, IsFlatAfterStep20) {
  program_.write("run.toml", run_config(kConfig));
  std::string data;
  for (int i = 0; i < 16; ++i)
    data +=
        fmt::format("{{\"prompt\":\"What is {} plus {}?\",\"answer\":\"{}\"}}\n", 10 + i, 30 + i, 40 + 2 * i);
  program_.write("data.jsonl", data);
  ASSERT_EQ(program_.init_model("model", kModel), 0) << output();
  Background run(program_, kGiveBack + program_.mpirun(2, "train run.toml"));
  const Peaks ranks = watch(run);
  ASSERT_EQ(run.wait(), 0) << output();
  ASSERT_EQ(ranks.size(), 2u);
  for (const auto& [rank, peaks] : ranks) {
    ASSERT_EQ(peaks.count(1), 1u) << "no window begins at step " << kWindow;
    const int64_t first = peaks.at(1);
    for (const auto& [window, peak] : peaks) {
      std::printf("process %d, from step %3d: %6.1f MiB\n", rank, window * kWindow,
                  static_cast<double>(peak) / 1024);
      if (window == 0 || window == kSteps / kWindow) continue;
      EXPECT_LE(std::abs(peak - first), first / 100) << "kB more or less from step " << window * kWindow;
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
