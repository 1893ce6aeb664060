// Verbs that no launcher has started: they need nothing of MPI, so any number of them runs side by side and
// /tmp is not written, and what they leave is what one rank of mpirun leaves.

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "alone"
run.steps = 3
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 6
rollout.tokens_per_step = 4
train.samples_per_update = 3
train.last_partial = "keep"
checkpoint.every = 1
checkpoint.export_hf_every = 3
)";

const std::string kScore = "score --model model --input ids.jsonl --device cpu --threads 1";

class NoLauncher : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(7));
    program_.write("ids.jsonl", "{\"tokens\":[7,8,9]}\n{\"tokens\":[10,11,12,13]}\n");
  }
  /// What a verb prints, which says nothing else.
  std::string result_of(const std::string& command) const {
    EXPECT_EQ(program_.shell(command + " > result.log"), 0) << command << "\n" << output();
    EXPECT_EQ(output(), "") << command;
    return program_.read("result.log");
  }
};

TEST_F(NoLauncher, VerbsRunSideBySide) {
  const std::string wanted = result_of(program_.temper() + " " + kScore);
  ASSERT_EQ(times_in(wanted, "\n"), 2) << wanted;
  std::vector<std::unique_ptr<Background>> jobs;
  for (int job = 0; job < 8; ++job)
    jobs.push_back(std::make_unique<Background>(program_, program_.temper() + " " + kScore,
                                                fmt::format("job-{}.log", job)));
  for (int job = 0; job < 8; ++job) {
    const std::string log = fmt::format("job-{}.log", job);
    EXPECT_EQ(jobs[static_cast<size_t>(job)]->wait(), 0) << program_.read(log);
    EXPECT_EQ(program_.read(log), wanted) << job;
  }
}

TEST_F(NoLauncher, TemporaryFoldersAreNotWritten) {
  const std::string score = program_.temper() + " " + kScore, wanted = result_of(score);
  EXPECT_EQ(result_of("TMPDIR=$PWD/none " + score), wanted);
  EXPECT_EQ(program_.shell("TMPDIR=$PWD/none " + program_.temper() + " train run.toml run.name=none"), 0)
      << output();
  EXPECT_FALSE(exists("none"));
  // The folder of the test, which may be in /tmp, is a mount of its own, to which the rest of /tmp is
  // nothing.
  program_.write("start.sh",
                 "mount --bind /tmp /tmp && mount --bind $PWD $PWD && mount -o remount,ro,bind /tmp && "
                 "cd $PWD && ! touch /tmp/temper-test-touched 2> touched.log && exec \"$@\"\n");
  const std::string there = "unshare -m sh start.sh ";
  if (program_.shell(there + "touch written") != 0) GTEST_SKIP() << "no mount namespaces here: " << output();
  EXPECT_EQ(result_of(there + score), wanted);
  EXPECT_EQ(program_.shell(there + program_.temper() + " train run.toml"), 0) << output();
  EXPECT_EQ(run_difference(program_, "none", "alone"), "");
}

TEST_F(NoLauncher, TrainHasTheBitsOfOneRank) {
  ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  ASSERT_EQ(program_.run_ranks(1, "train run.toml run.name=one"), 0) << output();
  EXPECT_EQ(steps_done("one"), 3);
  EXPECT_EQ(run_difference(program_, "alone", "one"), "");
  EXPECT_TRUE(exported_weights("alone", 3) == exported_weights("one", 3));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
