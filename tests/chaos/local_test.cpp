// SIGINT, SIGTERM, SIGHUP and SIGUSR1 to a run with `--local` at any instant from its start to its end, on a
// terminal and into a pipe. What can be saved is, with 75; before that it ends with 128 + the number. Nothing
// goes on afterwards, the terminal is as it was, and the run that goes on is the one that nobody stopped. Nor
// does anything outlive a killed parent, and a killed rank has its report, whenever it is.

#include "tests/chaos/chaos_run.h"
#include "tests/support/local_run.h"

namespace temper {
namespace {

constexpr int kRetry = static_cast<int>(Exit::retry);

class LocalSignals : public ChaosRun {
 protected:
  std::string local(const Scenario& s, const std::string& run) const {
    return fmt::format("{} train run.toml {} run.name={} --local {}", program_.temper(), s.overrides, run,
                       s.ranks);
  }
  /// What a whole run takes, started in this way; measured once.
  double seconds_of(const Scenario& s) {
    whole(s);
    const std::lock_guard lock(mutex_);
    double& seconds = seconds_[s.name];
    if (seconds > 0) return seconds;
    const Stopwatch watch;
    LocalRun job(program_, local(s, std::string("timed-") + s.name), LocalRun::Where::pipe);
    if (const int code = job.wait(); code != 0)
      throw std::runtime_error(fmt::format("{} ended with {}: {}", s.name, code, job.printed()));
    return seconds = watch.seconds();
  }
  /// Empty, or what is wrong about the end.
  std::string end_defect(LocalRun& job, const std::string& run, int signal, int64_t before) const {
    const int code = job.wait();
    const std::string printed = job.printed();
    if (!job.processes().empty()) return fmt::format("code {}, and something goes on: {}", code, printed);
    if (const std::string words = words_of_launcher(printed); !words.empty())
      return words + " in: " + printed;
    if (code == 0) return newest_step(run) == kChaosSteps ? "" : "code 0 without the last step: " + printed;
    if (code == 128 + signal)
      return newest_step(run) == before ? "" : fmt::format("code {}, and steps were made: {}", code, printed);
    if (code != kRetry) return fmt::format("code {}: {}", code, printed);
    const std::string words = fmt::format(": saved step {}; run the same command again", newest_step(run));
    return printed.find(words) != std::string::npos ? "" : fmt::format("no \"{}\": {}", words, printed);
  }
  /// Empty, or what is wrong after the parent (victim -1) or a rank was killed, if the run was not over
  /// before.
  std::string killed_defect(LocalRun& job, const std::string& run, int victim, pid_t killed) const {
    const int code = job.wait();
    for (const Stopwatch waited; !job.processes().empty() && waited.seconds() < 10;)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::string printed = job.printed();
    if (!job.processes().empty()) return fmt::format("code {}, and something goes on: {}", code, printed);
    if (const std::string words = words_of_launcher(printed); !words.empty())
      return words + " in: " + printed;
    if (code == 0) return newest_step(run) == kChaosSteps ? "" : "code 0 without the last step: " + printed;
    if (victim < 0) return code == 128 + SIGKILL ? "" : fmt::format("code {}: {}", code, printed);
    if (code != kRetry && (code != static_cast<int>(Exit::internal) || newest_step(run) > 0))
      return fmt::format("code {} with step {} saved: {}", code, newest_step(run), printed);
    const auto said = [&](const std::string& words) { return printed.find(words) != std::string::npos; };
    const bool named = (said(fmt::format("rank {}", victim)) && said(fmt::format("pid {}", killed))) ||
                       said(fmt::format("rank {}, at its start", victim)) ||
                       (newest_step(run) == 0 && said("died while ranks started"));
    return named ? "" : fmt::format("not rank {}, pid {}: {}", victim, killed, printed);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> seconds_;
};

TEST_F(LocalSignals, SaveOrSayThatThereIsNothingToSave) {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::map<std::pair<int, int>, int> ends;  // signal and exit code
  std::mutex mutex;
  run_cases(chaos_count(2, 60), [&](int64_t number, Draw& draw) -> std::string {
    const Scenario& s = kScenarios[1 + draw.below(2)];  // two ranks
    const std::string run = fmt::format("local-{}", number);
    const double seconds = seconds_of(s);
    for (int64_t left = 1 + draw.below(3); left > 0 && newest_step(run) < kChaosSteps; --left) {
      const double instant = draw.part() * 1.1 * seconds;
      const int signal = draw.from(kSignals);
      const auto where = draw.below(3) > 0 ? LocalRun::Where::terminal : LocalRun::Where::pipe;
      const int64_t before = newest_step(run);
      LocalRun job(program_, local(s, run), where);
      const Stopwatch started;
      if (job.until([&] { return started.seconds() >= instant; })) job.send(signal);
      std::string defect = end_defect(job, run, signal, before);
      if (defect.empty() && where == LocalRun::Where::terminal) defect = job.terminal_defect();
      if (defect.empty()) defect = committed_defect(run, before);
      if (!defect.empty())
        return fmt::format("{}, signal {} after {:.3f} of {:.3f} s: {}", s.name, signal, instant, seconds,
                           defect);
      const std::lock_guard lock(mutex);
      ++ends[{signal, job.wait()}];
    }
    return finish_and_compare(s, run);
  });
  for (const auto& [end, times] : ends)
    std::printf("SIG%s: exit code %d, %d times\n", ::sigabbrev_np(end.first), end.second, times);
}

/// A killed rank is named in the report; the code asks for another start, or for a look where nothing was
/// saved.
TEST_F(LocalSignals, WhatIsKilledEndsTheRest) {
  std::map<std::pair<std::string, int>, int> ends;  // who was killed, exit code
  std::mutex mutex;
  run_cases(chaos_count(1, 30), [&](int64_t number, Draw& draw) -> std::string {
    const Scenario& s = kScenarios[1 + draw.below(2)];  // two ranks
    const std::string run = fmt::format("killed-{}", number);
    const double seconds = seconds_of(s), instant = draw.part() * 1.05 * seconds;
    const int victim = static_cast<int>(number % 3) - 1;  // -1: the parent
    const auto where = draw.below(2) > 0 ? LocalRun::Where::terminal : LocalRun::Where::pipe;
    LocalRun job(program_, local(s, run), where);
    const Stopwatch started;
    pid_t killed = -1;
    job.until([&] {
      if (started.seconds() < instant) return false;
      const std::map<int, pid_t> ranks = job.ranks();
      if (victim >= 0 && !ranks.contains(victim)) return false;
      killed = victim < 0 ? job.pid() : ranks.at(victim);
      ::kill(killed, SIGKILL);
      return true;
    });
    std::string defect = killed_defect(job, run, victim, killed);
    if (defect.empty() && victim >= 0 && where == LocalRun::Where::terminal) defect = job.terminal_defect();
    if (defect.empty()) defect = committed_defect(run, 0);
    const std::string who = victim < 0 ? "the parent" : fmt::format("rank {}", victim);
    if (!defect.empty())
      return fmt::format("{}, {} killed after {:.3f} of {:.3f} s: {}", s.name, who, instant, seconds, defect);
    {
      const std::lock_guard lock(mutex);
      ++ends[{killed < 0 ? "nobody" : who, job.wait()}];
    }
    return finish_and_compare(s, run);
  });
  for (const auto& [end, times] : ends)
    std::printf("%s: exit code %d, %d times\n", end.first.c_str(), end.second, times);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
