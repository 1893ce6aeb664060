// Which rank holds up a run: work that takes longer than cluster.watchdog_seconds is no hang; a rank that is
// stopped or killed is named once, on stderr and in the run folder. Through the program itself.

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr int kHang = static_cast<int>(Exit::hang);

const char* kConfig = R"(
run.name = "run"
run.steps = 100000
algorithm.kl_coef = 0.1
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 6
rollout.ignore_eos = true
rollout.kv_memory = 50000000
cluster.watchdog_seconds = 2
)";

class MissingRank : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(17));
    prepare_long_model();
  }

  std::string command(const std::string& overrides) const {
    return program_.mpirun(3,
                           "train run.toml model.path=long roles.rollout.ranks='\"0\"' "
                           "roles.reference.ranks='\"1\"' roles.trainer.ranks='\"2\"' " +
                               overrides);
  }
  bool trains() const { return steps_done("run") > 5; }
  /// Once on stderr and once in the run folder.
  void expect_named(int rank, pid_t process, const std::string& phase) const {
    const std::string place = fmt::format("where: rank {}, host ", rank);
    EXPECT_EQ(count(place), 1) << output();
    EXPECT_EQ(count("  where: rank "), 1) << output();
    ASSERT_TRUE(exists("runs/run/missing-rank.txt")) << output();
    const std::string report = program_.read("runs/run/missing-rank.txt");
    for (const std::string& text :
         {place, fmt::format("pid {}, phase {}", process, phase), std::string("since ")}) {
      EXPECT_NE(report.find(text), std::string::npos) << text << " in: " << report;
      EXPECT_TRUE(says(text)) << text << " in: " << output();
    }
    EXPECT_TRUE(says("it goes on from the newest checkpoint if there is one")) << output();
  }
};

TEST_F(MissingRank, ALongStepIsNoHang) {
  // Sequences that are longer still make single layers take as long as the limit on a machine with other
  // work.
  const std::string keys =
      "run.steps=1 rollout.prompts_per_step=1 rollout.samples_per_prompt=6 rollout.max_new_tokens=4500";
  ASSERT_EQ(program_.shell(command(keys)), 0) << output();
  EXPECT_GT(program_.metrics("run").back().at("timing_s/gen").get<double>(), 2) << "it was no long step";
  EXPECT_FALSE(exists("runs/run/missing-rank.txt"));
}

/// It has a limit of its own, three times the watch's here.
TEST_F(MissingRank, ARewardProgramThatIsLateIsNoHang) {
  const std::string late =
      "reward.functions='[{name = \"command\", argv = [\"sleep\", \"100\"], limit_seconds = 6, "
      "on_error = \"zero\"}]'";
  EXPECT_EQ(program_.run_ranks(3, "train run.toml run.steps=1 " + late), 0) << output();
}

/// A run of one rank is watched, too: the keeper of its reward programs answers to nobody.
TEST_F(MissingRank, AStoppedKeeperIsAHang) {
  program_.write("reward.sh", "touch asked; sleep 1; exit 1\n");
  Background job(program_, program_.temper() +
                               " train run.toml reward.functions='[{name = \"command\", argv = [\"sh\", "
                               "\"reward.sh\"], limit_seconds = 100}]'");
  ASSERT_TRUE(job.until([&] { return exists("asked"); })) << output();
  for (const pid_t child : job.children()) ::kill(child, SIGSTOP);
  EXPECT_EQ(job.wait(), kHang) << output();
  EXPECT_TRUE(says("rank 0 on host ") && says("phase rollout")) << output();
  EXPECT_TRUE(exists("runs/run/missing-rank.txt"));
}

TEST_F(MissingRank, AStoppedRankIsNamed) {
  for (const int victim : {0, 1, 2}) {
    std::filesystem::remove_all(program_.path("runs/run"));
    Background job(program_, command(""));
    ASSERT_TRUE(job.until([&] { return trains(); })) << output();
    const pid_t process = job.rank(victim);
    ::kill(process, SIGSTOP);
    EXPECT_EQ(job.wait(), kHang) << output();
    expect_named(victim, process, "");
    EXPECT_TRUE(says(fmt::format("rank {} on host", victim))) << output();
    EXPECT_TRUE(says("of step ")) << output();
    EXPECT_GE(count("  waits: rank "), 1) << output();
  }
}

TEST_F(MissingRank, ARankThatIsStoppedBeforeMpiIsUpIsNamed) {
  for (const int victim : {0, 2}) {
    std::filesystem::remove_all(program_.path("runs/run"));
    Background job(program_, command(""));
    const pid_t process = job.rank(victim);
    ::kill(process, SIGSTOP);
    EXPECT_EQ(job.wait(), kHang) << output();
    expect_named(victim, process, "");
  }
}

TEST_F(MissingRank, AKilledRankIsNamed) {
  Background job(program_, command(""));
  ASSERT_TRUE(job.until([&] { return trains(); })) << output();
  const pid_t process = job.rank(1);
  ::kill(process, SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << output();
  EXPECT_TRUE(says("rank 1 on host ")) << output();
  EXPECT_TRUE(says(" died in ")) << output();
  EXPECT_TRUE(says("  log:   runs/run/logs/rank-0001.log\n")) << output();
  expect_named(1, process, "");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
