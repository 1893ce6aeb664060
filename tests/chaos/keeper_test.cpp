// The keeper of reward programs killed in each state of a run: while it starts, with nothing to do, with a
// program at work, while the run saves, while it ends. The run comes to its end, or ends with the code that
// asks for it again (78 before there is a checkpoint), and is then the run that nobody disturbed.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

const std::string kRewards =
    "checkpoint.every=1 run.steps=5 "
    "reward.functions='[{name=\"command\",argv=[\"sh\",\"reward.sh\"],workers=2}]' ";
const std::string kApart = kRewards +
                           "run.max_policy_lag=1 roles.rollout.ranks='\"0\"' "
                           "roles.reference.ranks='\"1\"' roles.trainer.ranks='\"1\"' ";
const Scenario kRuns[] = {
    {"alone", 0, kRewards.c_str()}, {"two", 2, kRewards.c_str()}, {"apart", 2, kApart.c_str()}};

enum class State { starting, idle, at_work, saving, ending };
constexpr State kStates[] = {State::starting, State::idle, State::at_work, State::saving, State::ending};

class Keepers : public ChaosRun {
 protected:
  void SetUp() override {
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);  // the others end at once
    ChaosRun::SetUp();
    // It takes long enough to be met at work, and says where: a file for each response.
    program_.write("reward.sh", R"sh(
while IFS= read -r line; do
  id=${line##*\"id\":}; id=${id%\}}
  response=${line#*\"response\":\"}; response=${response%%\"*}
  at=${WORK:-.}/busy-$$; : > "$at"; sleep 0.01; rm -f "$at"
  echo "{\"id\":$id,\"reward\":$((${#response} % 3))}"
done
)sh");
  }

  std::string start(const Scenario& s, const std::string& run) const {
    make_directories(program_.path("work-" + run));
    return command(s, run, "WORK=" + program_.path("work-" + run));
  }
  bool at_work(const std::string& run) const { return !list_directory(program_.path("work-" + run)).empty(); }
  bool saves(const std::string& run) const {
    const std::string folder = program_.path("runs/" + run + "/checkpoints");
    if (!is_directory(folder)) return false;
    const std::vector<std::string> names = list_directory(folder);
    return std::any_of(names.begin(), names.end(), is_temporary);
  }
  bool is(State state, const std::string& run) const {
    const std::string said = printed(run);
    switch (state) {
      case State::starting:
        return true;
      case State::idle:
        return said.find("step 1/") != std::string::npos && !at_work(run);
      case State::at_work:
        return at_work(run);
      case State::saving:
        return saves(run);
      case State::ending:
        return said.find("step 5/") != std::string::npos;
    }
    return false;
  }

  std::mutex mutex_;
  std::map<int, int> codes_;
};

TEST_F(Keepers, TheRunIsTheOneWhoseKeeperLived) {
  run_cases(chaos_count(5, 100), [&](int64_t number, Draw& draw) -> std::string {
    const State state = kStates[static_cast<size_t>(number) % std::size(kStates)];
    const Scenario& s = kRuns[static_cast<size_t>(draw.below(chaos_in_full() ? std::ssize(kRuns) : 2))];
    const std::string run = fmt::format("keeper-{}", number);
    whole(s);
    const double later = draw.below(2) == 0 ? 0 : draw.part() * 0.05;
    const size_t chosen = static_cast<size_t>(draw.below(4));
    Background job(program_, start(s, run), log_of(run));
    std::vector<pid_t> keepers;
    const bool reached = job.until([&] {
      keepers = keepers_among(job.processes());
      return !keepers.empty() && is(state, run);
    });
    std::this_thread::sleep_for(std::chrono::duration<double>(later));
    if (reached) ::kill(keepers[chosen % keepers.size()], SIGKILL);
    const int64_t before = newest_step(run);
    const int code = job.wait();
    wait_until_gone(job);
    const std::string fault =
        fmt::format("{}: keeper killed in state {}: code {}: ", s.name, static_cast<int>(state), code);
    {
      const std::lock_guard lock(mutex_);
      ++codes_[code];
    }
    // One that was lost before the first checkpoint ends the job a second later: others may save until then.
    const bool again = code == static_cast<int>(Exit::retry) && newest_step(run) > 0;
    const bool nothing = code == static_cast<int>(Exit::environment) && before == 0;
    if (code != 0 && !again && !nothing) return fault + printed(run);
    if (const std::string defect = committed_defect(run, before); !defect.empty()) return fault + defect;
    return finish_and_compare(s, run);
  });
  for (const auto& [code, times] : codes_) std::printf("code %d (%d times) ", code, times);
  std::printf("\n");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
