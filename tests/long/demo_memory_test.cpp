// The demo's GRPO for 1,500 steps, with validations, checkpoints and exports, as users run it: the resident
// memory of each rank is flat after step 100.

#include "tests/long/memory_watch.h"

namespace temper {
namespace {

constexpr int kSteps = 1500, kWindow = 100;

using DemoMemory = MemoryWatch;

TEST_F(DemoMemory, IsFlatAfterStep100) {
  const std::string root = std::filesystem::current_path().string();
  const int made =
      program_.shell(fmt::format("ln -s {0}/conf conf && {0}/tools/demo_data.sh runs/demo/data && {1} init "
                                 "--config conf/demo/config.json "
                                 "--tokenizer conf/demo --out runs/demo/model --seed 1",
                                 root, program_.temper()));
  ASSERT_EQ(made, 0) << output();
  // A model that knows half of the answers: responses have all lengths.
  ASSERT_EQ(program_.run_ranks(2, "train conf/demo_sft.toml run.steps=100 checkpoint.export_hf_every=100"), 0)
      << output();
  const std::string train = fmt::format(
      "train conf/demo_grpo.toml model.path=runs/demo-sft/export/step-000100 run.steps={} "
      "checkpoint.every=20 "
      "checkpoint.export_hf_every=50",
      kSteps);
  expect_flat(program_.mpirun(2, train), "demo-grpo", 2, kSteps, kWindow, kWindow);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
