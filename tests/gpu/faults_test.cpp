// What goes wrong in runs on a GPU, through the program: a run that is killed goes on with the same bits;
// weights, losses and memory that are bad end with the codes and messages of the contract.

#include "src/core/arena.h"
#include "tests/gpu/gpu_runs.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "whole"
run.steps = 40
run.device = "cuda"
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 6
rollout.samples_per_prompt = 4
rollout.max_new_tokens = 40
rollout.kv_memory = 20000000
train.samples_per_update = 12
train.max_tokens_per_microbatch = 300
model.context_tokens = 200
checkpoint.every = 3
checkpoint.export_hf_every = 40
)";
constexpr int kSteps = 40;

class GpuFaults : public GpuRunFixture {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(29));
    ASSERT_EQ(program_.init_model("model", kTensorCores), 0) << output();
  }
  void expect_ends(const std::string& arguments, Exit code, const std::vector<std::string>& words) const {
    EXPECT_EQ(program_.run("train run.toml " + arguments), static_cast<int>(code)) << arguments << "\n"
                                                                                   << output();
    for (const std::string& word : words) EXPECT_TRUE(says(word)) << "no \"" << word << "\" in: " << output();
    for (const char* part : {"temper: ", "  where: ", "  why:   ", "  fix:   "})
      EXPECT_TRUE(says(part)) << "no \"" << part << "\" in: " << output();
  }
};

TEST_F(GpuFaults, AKilledRunGoesOnWithTheSameBits) {
  ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  const std::string command = "train run.toml run.name=killed";
  for (const int64_t more : {4, 9}) {  // between checkpoints, twice
    Background job(program_, program_.temper() + " " + command);
    const int64_t before = steps_done("killed");
    ASSERT_TRUE(job.until([&] { return steps_done("killed") >= before + more; })) << output();
    ::kill(job.pid(), SIGKILL);
    ASSERT_EQ(job.wait(), 128 + SIGKILL) << "the run was over before the signal: " << output();
  }
  ASSERT_EQ(program_.run(command), 0) << output();
  EXPECT_TRUE(says("resumed from")) << output();
  EXPECT_EQ(metrics("killed"), metrics("whole"));
  EXPECT_TRUE(exported_weights("killed", kSteps) == exported_weights("whole", kSteps));
  for (const int step : {1, kSteps / 2, kSteps})
    EXPECT_TRUE(rollouts("killed", step) == rollouts("whole", step)) << step;
}

/// In steps that are mostly update, of many micro-batches: what its kernels work on goes after them.
TEST_F(GpuFaults, AStopInAnUpdateLosesNothing) {
  const std::string command =
      "train run.toml rollout.max_new_tokens=12 train.samples_per_update=24 "
      "train.max_tokens_per_microbatch=64 rollout.max_prompt_tokens=40 ";
  ASSERT_EQ(program_.run(command), 0) << output();
  for (const int milliseconds : {1, 5, 9, 13, 17, 21, 25, 29})
    stop_inside_of_a_step(program_.temper() + " " + command + "run.name=stopped", "stopped", kSteps,
                          milliseconds, [](Background& job) { return job.pid(); });
  ASSERT_EQ(program_.run(command + "run.name=stopped"), 0) << output();
  EXPECT_TRUE(says("resumed from")) << output();
  EXPECT_EQ(metrics("stopped"), metrics("whole"));
  EXPECT_TRUE(exported_weights("stopped", kSteps) == exported_weights("whole", kSteps));
}

TEST_F(GpuFaults, AWeightThatIsNoNumberIsRefused) {
  std::string weights = program_.read("model/model.safetensors");
  weights.replace(weights.size() - 2, 2, std::string("\xc0\x7f", 2));  // NaN, in bf16 and in fp32
  program_.write("model/model.safetensors", weights);
  expect_ends("", Exit::data, {"not finite"});
  EXPECT_FALSE(exists("runs/whole/metrics.jsonl"));
}

/// The learning rate is absurd: weight decay alone multiplies the weights by -99 in each step.
TEST_F(GpuFaults, ALossThatIsNoNumberLeavesADump) {
  expect_ends(
      "algorithm.name=sft algorithm.kl_coef=0 algorithm.entropy_coef=0 rollout.samples_per_prompt=1 "
      "train.samples_per_update=6 optimizer.lr=1000 optimizer.grad_clip=0",
      Exit::numerics, {"training stopped before the update", "not finite", "step ", "nonfinite/"});
  const std::vector<std::string> dumps = list_directory(program_.path("runs/whole/nonfinite"));
  ASSERT_EQ(dumps.size(), 1u);
  EXPECT_EQ(dumps[0], fmt::format("step-{:06d}.jsonl", steps_done("whole") + 1));
}

/// More than the card has is known before anything starts; what another process holds, at the start, or where
/// the card is shared, when it is asked for.
TEST_F(GpuFaults, MemoryThatIsNotThere) {
  device::select_gpu(device::find_gpus().gpus.at(0));
  const int64_t total = device::gpu_memory().total;
  expect_ends(fmt::format("rollout.kv_memory={}", total + (int64_t{1} << 30)), Exit::usage,
              {"rollout.kv_memory", "its share of the GPU"});
  Arena other(Device::cuda);
  other.allocate(total / 2);
  const std::string most = fmt::format("rollout.kv_memory={} ", total / 5 * 3);
  expect_ends(most, Exit::environment, {"too little memory of the GPU is free", "nvidia-smi"});
  expect_ends(most + "cluster.shared_gpus=allow", Exit::storage,
              {"out of GPU memory: KV cache", "phase load", "bytes more are wanted beside", "are free",
               "lower rollout.kv_memory"});
  EXPECT_FALSE(exists("runs/whole/metrics.jsonl"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
