// SIGKILL at any instant: of one rank, of all, of mpirun, of everything. Whatever was committed stays, and
// the run that is started again and again until it comes to its end is the run that nobody killed.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

constexpr int kMostKills = 6;  // of a run, before it is left alone

enum class Victim { rank, all_ranks, launcher, everything };

class Kills : public ChaosRun {
 protected:
  void SetUp() override {
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);  // the others end at once
    ChaosRun::SetUp();
  }

  /// True when the job still ran at that instant.
  static bool kill_after(Background& job, double seconds, Victim victim, int64_t rank) {
    const Stopwatch watch;
    if (!job.until([&] { return watch.seconds() >= seconds; })) return false;
    const std::map<int, pid_t> ranks = job.ranks();
    if (ranks.empty() || victim == Victim::launcher) return ::kill(job.pid(), SIGKILL) == 0;
    if (victim == Victim::rank) {
      const auto found = ranks.find(static_cast<int>(rank) % static_cast<int>(ranks.size()));
      return ::kill(found == ranks.end() ? job.pid() : found->second, SIGKILL) == 0;
    }
    if (victim == Victim::everything) ::kill(job.pid(), SIGKILL);
    for (const auto& [number, process] : ranks) ::kill(process, SIGKILL);
    return true;
  }
};

TEST_F(Kills, TheRunIsTheOneThatNobodyKilled) {
  const int64_t wanted = chaos_count(12, 1000);
  std::atomic<int64_t> kills = 0;
  const auto one = [&](int64_t number, Draw& draw) -> std::string {
    if (kills >= wanted) return "";
    const Scenario& s = draw.from(kScenarios);
    const std::string run = fmt::format("killed-{}", number);
    double seconds = 0;
    whole(s, &seconds);
    for (int64_t left = 1 + draw.below(kMostKills); left > 0; --left) {
      const int64_t before = newest_step(run);
      const double instant = draw.part() * 1.2 * seconds;
      const auto victim = static_cast<Victim>(draw.below(4));
      const int64_t rank = draw.below(3);
      Background job(program_, command(s, run), log_of(run));
      const bool killed = kill_after(job, instant, victim, rank);
      wait_until_gone(job);
      kills += killed;
      const std::string fault = fmt::format("{}, victim {} after {:.3f} of {:.3f} s", s.name,
                                            static_cast<int>(victim), instant, seconds);
      if (!killed && job.wait() != 0)
        return fmt::format("{}: a start ended with {}: {}", fault, job.wait(), printed(run));
      if (const std::string defect = committed_defect(run, before); !defect.empty())
        return fmt::format("{}: {}", fault, defect);
    }
    return finish_and_compare(s, run);
  };
  run_cases(wanted, one);
  std::printf("%lld runs were killed\n", static_cast<long long>(kills));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
