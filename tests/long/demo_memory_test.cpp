// The demo's GRPO for 1,500 steps, with validations, checkpoints and exports, as users run it: what each rank
// holds is flat after step 100. On a GPU, where there is one, 1,000 steps.

#include "tests/long/memory_watch.h"

namespace temper {
namespace {

constexpr int kWindow = 100;

class DemoMemory : public MemoryWatch {
 protected:
  void expect_flat_demo(const std::string& device, int ranks, int steps) {
    const std::string root = std::filesystem::current_path().string();
    const int made =
        program_.shell(fmt::format("ln -s {0}/conf conf && {0}/tools/demo_data.sh runs/demo/data && {1} init "
                                   "--config conf/demo/config.json "
                                   "--tokenizer conf/demo --out runs/demo/model --seed 1",
                                   root, program_.temper()));
    ASSERT_EQ(made, 0) << output();
    // A model that knows half of the answers: responses have all lengths.
    const std::string taught = "run.steps=100 checkpoint.export_hf_every=100 run.device=" + device;
    ASSERT_EQ(program_.run_ranks(ranks, "train conf/demo_sft.toml " + taught), 0) << output();
    const std::string train = fmt::format(
        "train conf/demo_grpo.toml model.path=runs/demo-sft/export/step-000100 run.device={} run.steps={} "
        "checkpoint.every=20 "
        "checkpoint.export_hf_every=50",
        device, steps);
    expect_flat(program_.mpirun(ranks, train), "demo-grpo", ranks, steps, kWindow, kWindow, device == "cuda");
  }
};

TEST_F(DemoMemory, IsFlatAfterStep100) { expect_flat_demo("cpu", 2, 1500); }

TEST_F(DemoMemory, IsFlatOnAGpu) {
  ::unsetenv("CUDA_VISIBLE_DEVICES");  // Program hides them
  if (device::find_gpus().gpus.empty()) GTEST_SKIP() << "no GPU";
  expect_flat_demo("cuda", 1, 1000);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
