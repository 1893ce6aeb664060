// An MPI_Finalize without end where there is no other rank: a job of one rank that mpirun has started ends in
// bounded time with the code of a hang, and what it made is there. tests/comm/job_end_test has two ranks.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

class Finalize : public ChaosRun {
 protected:
  /// `arguments` for temper, as one rank under mpirun.
  std::string hanging(const std::string& arguments) const {
    const std::string shim =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fault_shim.so").string();
    return fmt::format(
        "env ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD={} TEMPER_FAULT_ROOT=runs "
        "TEMPER_FAULT=FINALIZE {}",
        shim, program_.mpirun(1, arguments));
  }
};

TEST_F(Finalize, WithoutEndIsAHangOfARun) {
  Background job(program_, hanging("train run.toml run.steps=1 cluster.watchdog_seconds=1"));
  EXPECT_EQ(job.wait(), static_cast<int>(Exit::hang)) << output();
  EXPECT_TRUE(says("rank 0 on host ") && says("it waits in 'MPI_Finalize'")) << output();
  EXPECT_NE(program_.read("runs/run/missing-rank.txt").find("MPI_Finalize"), std::string::npos);
  EXPECT_EQ(committed_defect("run", 1), "");
  EXPECT_EQ(steps_done("run"), 1);
  EXPECT_EQ(program_.run("train run.toml run.steps=2"), 0) << output();
  EXPECT_EQ(steps_done("run"), 2);
}

/// Other verbs have no watch: their limit is MpiSession::kEndSeconds.
TEST_F(Finalize, WithoutEndIsAHangOfAVerbThatIsNotWatched) {
  if (!chaos_in_full()) GTEST_SKIP() << "make chaos runs it: a minute";
  program_.write("prompts.jsonl", sums(2));
  Background job(program_, hanging("generate --model model --prompts prompts.jsonl rollout.max_new_tokens=3 "
                                   "--out answers.jsonl"));
  EXPECT_EQ(job.wait(), static_cast<int>(Exit::hang)) << output();
  EXPECT_TRUE(says("rank 0 does not get out of MPI_Finalize")) << output();
  EXPECT_EQ(program_.json_lines("answers.jsonl").size(), 2u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
