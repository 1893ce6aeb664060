// Runs in bf16 with the formats of the optimizer's state: halves of masters give the bits of fp32 masters,
// bf16 moments those of the run that was not stopped, and a checkpoint goes on in every format. On two ranks.

#include "src/io/checkpoint/manifest.h"
#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"

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

  struct Run {
    std::string name, formats;
    std::string of = {};  // the run that it is until a crash; it goes on with other formats
  };
  void train(const std::vector<Run>& runs) const {
    std::vector<RanksRun> all;
    for (const Run& r : runs) {
      if (!r.of.empty()) copy_until(r.of, r.name, kStopped, kSteps);
      all.push_back({2, "train run.toml run.name=" + r.name + " " + r.formats});
    }
    ASSERT_EQ(run_each(all), 0) << output();
    for (const Run& r : runs)
      if (!r.of.empty()) {
        EXPECT_TRUE(logged(r.name, fmt::format("{0}, step {1}", step_name(kStopped), kStopped))) << r.name;
      }
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
  const std::string full = "optimizer.master=fp32", halves = "optimizer.master=remainder",
                    shorter = "optimizer.state=bf16 optimizer.master=remainder";
  ASSERT_NO_FATAL_FAILURE(train({{"whole", full}, {"halves", halves}, {"short", shorter}}));
  ASSERT_NO_FATAL_FAILURE(train({{"whole-then-halves", halves, "whole"},
                                 {"halves-then-whole", full, "halves"},
                                 {"short-again", shorter, "short"},
                                 {"whole-then-short", shorter, "whole"}}));
  for (const char* run : {"halves", "whole-then-halves", "halves-then-whole"}) expect_same(run, "whole");
  EXPECT_FALSE(exported_weights("short", kSteps) == exported_weights("whole", kSteps));
  expect_same("short-again", "short");
  for (const auto& [name, entry] : tensors("whole-then-short"))
    EXPECT_FALSE(entry.starts_with("bf16")) << name;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
