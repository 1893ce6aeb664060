// Runs in bf16 with the formats of the optimizer's state: halves of masters give the bits of fp32 masters,
// bf16 moments those of the run that was not stopped, and a checkpoint goes on in every format. On two ranks.

#include "src/io/manifest.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr int kSteps = 5, kStopped = 2;

/// The KL and entropy terms give gradients although a random model never earns a reward.
const char* kConfig = R"(
run.name = "x"
run.steps = 5
run.dtype = "bf16"
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 3
rollout.max_new_tokens = 8
checkpoint.every = 1
checkpoint.keep = 20
checkpoint.export_hf_every = 5
)";

class OptimizerFormats : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(23)); }

  void train(const std::string& name, const std::string& formats) const {
    ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=" + name + " " + formats), 0) << output();
  }
  /// `name` is `of` until a crash, and goes on with other formats.
  void go_on(const std::string& of, const std::string& name, const std::string& formats) const {
    copy_until(of, name, kStopped, kSteps);
    train(name, formats);
    EXPECT_TRUE(says(fmt::format("step {}", kStopped))) << output();
  }
  void expect_same(const std::string& got, const std::string& want) const {
    EXPECT_EQ(metrics(got), metrics(want)) << got;
    EXPECT_TRUE(exported_weights(got, kSteps) == exported_weights(want, kSteps)) << got;
    EXPECT_EQ(tensors(got), tensors(want)) << got;
  }
  /// Digests and types of all tensors of the last checkpoint.
  std::map<std::string, std::string> tensors(const std::string& name) const {
    const Manifest manifest = Manifest::read(program_.path(checkpoint(name, kSteps)));
    std::map<std::string, std::string> all;
    for (const auto& [tensor, t] : manifest.tensors()) all[tensor] = dtype_name(t.dtype) + t.digest;
    return all;
  }
};

TEST_F(OptimizerFormats, HaveTheBitsOfTheirRun) {
  train("whole", "optimizer.master=fp32");
  train("halves", "optimizer.master=remainder");
  expect_same("halves", "whole");
  go_on("whole", "whole-then-halves", "optimizer.master=remainder");
  expect_same("whole-then-halves", "whole");
  go_on("halves", "halves-then-whole", "optimizer.master=fp32");
  expect_same("halves-then-whole", "whole");

  const std::string shorter = "optimizer.state=bf16 optimizer.master=remainder";
  train("short", shorter);
  EXPECT_FALSE(exported_weights("short", kSteps) == exported_weights("whole", kSteps));
  go_on("short", "short-again", shorter);
  expect_same("short-again", "short");
  go_on("whole", "whole-then-short", shorter);
  for (const auto& [name, entry] : tensors("whole-then-short"))
    EXPECT_FALSE(entry.starts_with("bf16")) << name;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
