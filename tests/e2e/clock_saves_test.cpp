// Checkpoints by the clock (checkpoint.every_minutes): they change no bit of a run, are one more beside those
// that are kept, and a run whose ranks are all killed goes on from them.

#include "tests/e2e/placed_run.h"
#include "tests/support/background.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

const std::string kByClock = "checkpoint.every=0 checkpoint.keep=1 checkpoint.every_minutes=1e-7 ";
const std::string kLate = "checkpoint.every=0 checkpoint.every_minutes=0 ";

class ClockSaves : public PlacedRun {
 protected:
  std::vector<int64_t> saved(const std::string& name) const {
    std::vector<int64_t> steps;
    for (const Json& line : program_.json_lines("runs/" + name + "/events.jsonl"))
      if (line.at("event") == "checkpoint") steps.push_back(line.at("step").get<int64_t>());
    return steps;
  }
  std::vector<std::string> checkpoints(const std::string& name) const {
    return list_directory(program_.path("runs/" + name + "/checkpoints"));
  }
};

TEST_F(ClockSaves, ChangeNoBit) {
  const Placement shapes[] = {
      {"tp", 2, "roles.trainer.tp=2"},
      {"pp", 2, "roles.trainer.pp=2"},
      {"zero", 2, "roles.trainer.zero=3"},
      {"apart", 2, R"(roles.rollout.ranks='"0"' roles.trainer.ranks='"1"' rollout.tokens_per_step=5)"}};
  std::vector<Run> runs;
  for (const Placement& shape : shapes) {
    const int lag = shape.name == "apart" ? 2 : 0;
    runs.push_back({shape, lag, shape.name + "-late", kLate});
    runs.push_back({shape, lag, shape.name, kByClock});
  }
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Placement& shape : shapes) {
    expect_same_run(shape.name + "-late", shape.name);
    EXPECT_EQ(saved(shape.name + "-late"), (std::vector<int64_t>{kSteps}));
    EXPECT_GT(saved(shape.name).size(), 1u) << "the clock saved nothing";
    EXPECT_EQ(checkpoints(shape.name), (std::vector<std::string>{"step-000005"}));
  }
}

TEST_F(ClockSaves, LeaveLittleToDoAgainWhereAllRanksAreKilled) {
  const Placement apart{"apart", 2, R"(roles.rollout.ranks='"0"' roles.trainer.ranks='"1"')"};
  const auto until = [](int64_t steps) {
    return fmt::format("optimizer.schedule=constant run.steps={0} checkpoint.export_hf_every={0} ", steps);
  };
  {
    Background job(program_, program_.mpirun(2, arguments(apart, 1, "killed", kByClock + until(1000000))));
    const std::string events = program_.path("runs/killed/events.jsonl");
    ASSERT_TRUE(job.until([&] { return path_exists(events) && saved("killed").size() >= 3; })) << output();
    for (const pid_t rank : {job.rank(0), job.rank(1)}) ::kill(rank, SIGKILL);
    job.wait();
  }
  const int64_t last = std::ssize(program_.metrics("killed")) + 3;
  ASSERT_EQ(
      train_each({{apart, 1, "killed", kByClock + until(last)}, {apart, 1, "whole", kLate + until(last)}}), 0)
      << output();
  EXPECT_TRUE(logged("killed", "resumed from")) << output();
  expect_same_run("whole", "killed", static_cast<int>(last));
}

/// Beside those that are kept: the clock's goes with the next one of any kind.
TEST_F(ClockSaves, AreOneMoreThanThoseThatAreKept) {
  const std::string both = "checkpoint.every=2 checkpoint.keep=2 checkpoint.every_minutes=1e-7 ";
  Background job(program_,
                 program_.mpirun(1, arguments({"one", 1, ""}, 0, "both", both + "run.steps=100000")));
  size_t most = 0;
  const std::string folder = program_.path("runs/both/checkpoints");
  ASSERT_TRUE(job.until([&] {
    if (!path_exists(folder)) return false;
    most = std::max(most, list_checkpoints(folder).size());
    return saved("both").size() > 12;
  })) << output();
  ::kill(job.rank(0), SIGUSR1);
  EXPECT_EQ(job.wait(), 75) << output();
  EXPECT_LE(most, 4u) << "two, one more, and one that is about to go";
  EXPECT_LE(list_checkpoints(folder).size(), 2u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
