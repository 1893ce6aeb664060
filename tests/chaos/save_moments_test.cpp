// Checkpoints by the clock at random moments, SIGKILL of all ranks at another, and one resume: the run is the
// one that never saves before its end, along each axis and where rollout is apart and ahead.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

constexpr Scenario kLayouts[] = {
    {"tp", 2, "roles.trainer.tp=2 "},
    {"pp", 2, "roles.trainer.pp=2 "},
    {"zero", 2, "roles.trainer.zero=3 "},
    {"apart", 2,
     "run.max_policy_lag=2 roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"' rollout.tokens_per_step=4 "
     "rollout.max_new_tokens=10 "},
};

class SaveMoments : public ChaosRun {
 protected:
  struct Saves {
    int64_t by_clock = 0, at_end = 0;
  };
  /// A start that saves every so many seconds, but for pauses that saves need.
  std::string saving(const Scenario& s, const std::string& run, double seconds) const {
    const std::string overrides =
        fmt::format("{} {} checkpoint.every_minutes={:.9f} ", s.overrides, kSteps, seconds / 60);
    return command({s.name, s.ranks, overrides.c_str()}, run);
  }
  Saves saves_of(const std::string& run) const {
    Saves saves;
    const std::string events = "runs/" + run + "/events.jsonl";
    if (!exists(events)) return saves;
    for (const Json& line : program_.json_lines(events))
      if (line.at("event") == "checkpoint") ++(line.at("step") == kLast ? saves.at_end : saves.by_clock);
    return saves;
  }

  static constexpr int kLast = 30;
  static constexpr const char* kSteps = "optimizer.schedule=constant run.steps=30 ";
};

TEST_F(SaveMoments, ChangeNoBit) {
  std::atomic<int64_t> saves = 0, resumed = 0, all_done = 0;
  run_cases(chaos_count(1, 20), [&](int64_t number, Draw& draw) -> std::string {
    const Scenario& layout = kLayouts[number % std::ssize(kLayouts)];
    const std::string never = fmt::format("{} {} checkpoint.every_minutes=0 ", layout.overrides, kSteps);
    const Scenario s{layout.name, layout.ranks, never.c_str()};
    const std::string run = fmt::format("moments-{}", number);
    double seconds = 0;
    whole(s, &seconds);
    const double first = draw.part() * seconds / 3, second = draw.part() * seconds / 3;
    const double instant = (0.3 + 0.5 * draw.part()) * seconds;
    {
      Background job(program_, saving(layout, run, first), log_of(run));
      const Stopwatch watch;
      if (job.until([&] { return watch.seconds() >= instant && newest_step(run) > 0; }))
        for (const auto& [rank, process] : job.ranks()) ::kill(process, SIGKILL);
      wait_until_gone(job);
    }
    const int64_t step = newest_step(run);
    ++(step == kLast ? all_done : resumed);
    Background job(program_, saving(layout, run, second), log_of(run));
    const std::string moments =
        fmt::format("{}, every {:.3f} s, killed after {:.3f} s at step {}, then every {:.3f} s", layout.name,
                    first, instant, step, second);
    if (const int code = job.wait(); code != 0)
      return fmt::format("{}: the second start ended with {}: {}", moments, code, printed(run));
    saves += saves_of(run).by_clock;
    const std::string difference = run_difference(program_, whole(s), run);
    if (!difference.empty()) return fmt::format("{}: {}\n{}", moments, difference, printed(run));
    remove_tree(program_.path("runs/" + run));
    return "";
  });
  std::printf("%lld checkpoints by the clock; %lld second starts went on from one, %lld found all done\n",
              static_cast<long long>(saves), static_cast<long long>(resumed),
              static_cast<long long>(all_done));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
