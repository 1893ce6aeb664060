// SIGUSR1, SIGTERM, SIGINT and SIGHUP at any instant from the start of a process to its end, half of them
// twice within a moment, which is once. A run that has
// something to save commits it and ends with 75; before that it ends with 128 + the number; and the run that
// goes on is the one that nobody stopped. Generation and updates that take far longer are cut.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

constexpr int kMostSignals = 4;  // for a run, before it is left alone
constexpr int kRetry = static_cast<int>(Exit::retry);

/// A step takes a second or two.
constexpr const char* kLong =
    "model.path=long checkpoint.every=2 rollout.max_new_tokens=400 rollout.ignore_eos=true "
    "rollout.kv_memory=50000000 ";

class SignalsAtAnyInstant : public ChaosRun {
 protected:
  void SetUp() override {
    ChaosRun::SetUp();
    prepare_long_model();
  }

  static std::vector<Scenario> scenarios() {
    static const std::string lag_0 = std::string(kLong), lag_1 = lag_0 + "run.max_policy_lag=1 ",
                             apart =
                                 " roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"' "
                                 "roles.reference.ranks='\"1\"' ",
                             apart_0 = lag_0 + apart, apart_1 = lag_1 + apart,
                             behind = lag_0 + apart + "run.max_policy_lag=2 rollout.max_running_sequences=2 ",
                             replaced = lag_0 + "rollout.dynamic_sampling_rounds=1 ";
    std::vector<Scenario> all(std::begin(kScenarios), std::end(kScenarios));
    for (const auto& [name, overrides] :
         {std::pair("long", &lag_0), std::pair("long-lag", &lag_1), std::pair("long-apart", &apart_0),
          std::pair("long-apart-lag", &apart_1), std::pair("long-behind", &behind),
          std::pair("long-replaced", &replaced)})
      all.push_back({name, 2, overrides->c_str()});
    return all;
  }

  struct Signal {
    int number;
    int to;  // a rank; -1: all ranks; -2: mpirun, which hands on SIGUSR1 alone
  };
  static Signal draw_signal(Draw& draw, const Scenario& s) {
    const Signal signal{draw.from(std::vector<int>{SIGUSR1, SIGTERM, SIGINT, SIGHUP}),
                        static_cast<int>(draw.below(s.ranks + 2)) - 1};
    if (s.ranks == 0) return {signal.number, -2};
    return signal.to < s.ranks ? signal : Signal{SIGUSR1, -2};
  }
  /// As launchers and `pkill` do it: the same signal once more, within the two seconds in which it is the
  /// first. It comes again after a part of them, where the process has not ended.
  static void send_again(Background& job, Signal signal, const Scenario& s, double seconds) {
    const Stopwatch since;
    if (job.until([&] { return since.seconds() >= seconds; })) send(job, signal, s.ranks);
  }
  /// False: there is no such process, yet or any more. mpirun drops what comes before it has started them.
  static bool send(const Background& job, Signal signal, int ranks) {
    const std::map<int, pid_t> there = job.ranks();
    const bool all = static_cast<int>(there.size()) == ranks;
    if (signal.to == -2) return all && ::kill(job.pid(), signal.number) == 0;
    bool sent = false;
    for (const auto& [rank, process] : there)
      if (signal.to < 0 || signal.to == rank) sent |= ::kill(process, signal.number) == 0;
    return sent;
  }

  /// Steps that the rank which gets the signal may be ahead of the one that trains, which hears of it with
  /// what that rank has to say of a step.
  static int64_t steps_ahead(const Scenario& s, Signal signal) {
    const std::string overrides = s.overrides, key = "run.max_policy_lag=";
    const size_t at = overrides.find(key);
    return signal.to < 0 || at == std::string::npos ? 0 : std::stoll(overrides.substr(at + key.size()));
  }
  /// Empty, or what is wrong about the end of a run that began after `steps` steps and had made `reached`
  /// when it got the signal, or its rank that is ahead.
  std::string end_defect(const std::string& run, int code, int number, int64_t steps, int64_t reached) const {
    const std::string said = printed(run);
    if (code == 0 && newest_step(run) < kChaosSteps) return "code 0 without the last step: " + said;
    if (code == 0) return reached < kChaosSteps - 2 ? "the signal was not heeded: " + said : "";
    if (code == 128 + number)
      return steps_done(run) <= steps ? "" : fmt::format("code {}, and a step was lost: {}", code, said);
    if (code != kRetry) return fmt::format("code {}: {}", code, said);
    const std::string words = fmt::format(": saved step {}; run the same command again", newest_step(run));
    return said.find(words) != std::string::npos ? "" : fmt::format("no \"{}\": {}", words, said);
  }

  std::mutex mutex_;
  double longest_ = 0;
  std::map<int, int> codes_;
};

TEST_F(SignalsAtAnyInstant, SaveOrSayThatThereIsNothingToSave) {
  const double limit = chaos_in_full() ? 10 : 60;  // seconds; beside other tests a machine may be slow
  const int64_t wanted = chaos_count(5, 200);
  std::atomic<int64_t> sent = 0;
  run_cases(wanted, [&](int64_t number, Draw& draw) -> std::string {
    if (sent >= wanted) return "";
    const std::vector<Scenario> all = scenarios();
    const Scenario& s = draw.from(all);
    const std::string run = fmt::format("signalled-{}", number);
    double seconds = 0;
    whole(s, &seconds);
    for (int64_t left = 1 + draw.below(kMostSignals); left > 0; --left) {
      const int64_t steps = newest_step(run);
      const double instant = draw.part() * 1.1 * seconds;
      const Signal signal = draw_signal(draw, s);
      Background job(program_, command(s, run), log_of(run));
      const Stopwatch started;
      bool hit = job.until([&] { return started.seconds() >= instant; });
      const Stopwatch since;
      hit = hit && send(job, signal, s.ranks);
      const double again = draw.below(2) == 0 ? draw.part() : -1;
      if (hit && again >= 0) send_again(job, signal, s, again);
      const int64_t reached = hit ? steps_done(run) : kChaosSteps;
      const int code = job.wait();
      const std::string fault =
          fmt::format("{}, signal {} to {} after {:.3f} of {:.3f} s{}, ended in {:.3f} s", s.name,
                      signal.number, signal.to, instant, seconds,
                      again < 0 ? "" : fmt::format(" and {:.3f} s later", again), since.seconds());
      {
        const std::lock_guard lock(mutex_);
        if (hit) longest_ = std::max(longest_, since.seconds());
        ++codes_[code];
      }
      wait_until_gone(job);
      sent += hit;
      const int64_t heard = reached + steps_ahead(s, signal);
      if (const std::string defect = end_defect(run, code, signal.number, steps, heard); !defect.empty())
        return fmt::format("{}: {}", fault, defect);
      if (job.was_stuck()) return fault + ": mpirun went on waiting";
      if (code != 0 && since.seconds() > limit) return fault + ": too late";
      if (const std::string defect = committed_defect(run, steps); !defect.empty())
        return fmt::format("{}: {}", fault, defect);
    }
    return finish_and_compare(s, run);
  });
  std::printf("%lld signals, the longest time to the end was %.2f s; exit codes:",
              static_cast<long long>(sent), longest_);
  for (const auto& [code, times] : codes_) std::printf(" %d (%d times)", code, times);
  std::printf("\n");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
