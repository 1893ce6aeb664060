// SIGSTOP of any rank at any instant, the start of the processes included: the rank is named within a second
// more than the limit. Work that takes many times the limit is no hang.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

constexpr int kLimit = 2;  // seconds

/// It does not end, and is as often at a checkpoint or an export as at anything else.
const std::string kEndless = fmt::format(
    "run.steps=100000 checkpoint.every=1 checkpoint.keep=1 checkpoint.export_hf_every=1 "
    "rollout.max_new_tokens=12 cluster.watchdog_seconds={} ",
    kLimit);
const std::string kApart = kEndless +
                           "roles.rollout.ranks='\"0\"' roles.reference.ranks='\"1\"' "
                           "roles.trainer.ranks='\"2\"' ",
                  kShared = kEndless + "roles.trainer.tp=2 roles.trainer.pp=2 ",
                  kSharded = kEndless + "roles.trainer.pp=2 roles.trainer.zero=3 ";
const Scenario kEndlessRuns[] = {
    {"apart", 3, kApart.c_str()}, {"shared", 4, kShared.c_str()}, {"sharded", 4, kSharded.c_str()}};

class StoppedRank : public ChaosRun {
 protected:
  std::string report(const std::string& run) const {
    const std::string file = "runs/" + run + "/missing-rank.txt";
    return exists(file) ? program_.read(file) : "";
  }
  /// The phase that the report says; empty: it is not about this rank.
  static std::string phase_of(const std::string& report, int rank, pid_t process) {
    const std::string place = fmt::format("  where: rank {}, host ", rank);
    const std::string sign = fmt::format("pid {}, phase ", process);
    const size_t at = report.find(sign, std::min(report.find(place), report.size()));
    if (report.find(place) != report.rfind("  where: ") || at == std::string::npos) return "";
    const size_t begin = at + sign.size();
    return report.substr(begin, report.find_first_of(" ,\n", begin) - begin);
  }

  std::mutex mutex_;
  std::map<std::string, int> phases_;
  double longest_ = 0;
};

TEST_F(StoppedRank, IsNamed) {
  // Beside other tests a machine may be slow; the watch's clock goes with it.
  const double limit = chaos_in_full() ? kLimit + 1 : 60;
  run_cases(chaos_count(4, 100), [&](int64_t number, Draw& draw) -> std::string {
    const std::string run = fmt::format("stopped-{}", number);
    const Scenario& s = kEndlessRuns[static_cast<size_t>(number) % std::size(kEndlessRuns)];
    const int victim = static_cast<int>(draw.below(s.ranks));
    // Half of them while the ranks come up.
    const double instant = draw.part() * (draw.below(2) == 0 ? 0.5 : 3.0);
    Background job(program_, command(s, run), log_of(run));
    const pid_t process = job.rank(victim);
    std::this_thread::sleep_for(std::chrono::duration<double>(instant));
    ::kill(process, SIGSTOP);
    const Stopwatch since;
    job.until([&] { return !report(run).empty(); });
    const double seconds = since.seconds();
    const int code = job.wait();
    const std::string phase = phase_of(report(run), victim, process);
    const std::string fault = fmt::format("{}: rank {} (pid {}) stopped after {:.3f} s, named after {:.3f} s",
                                          s.name, victim, process, instant, seconds);
    {
      const std::lock_guard lock(mutex_);
      ++phases_[phase];
      longest_ = std::max(longest_, seconds);
    }
    // mpirun itself may crash at its end when a rank was stopped while it connected: it has said the code.
    const bool told =
        printed(run).find(fmt::format("Exit code:    {}", static_cast<int>(Exit::hang))) != std::string::npos;
    if (code != static_cast<int>(Exit::hang) && !told)
      return fmt::format("{}: code {}: {}", fault, code, printed(run));
    if (phase.empty() || printed(run).find(report(run)) == std::string::npos)
      return fmt::format("{}: {}on stderr: {}", fault, report(run), printed(run));
    if (seconds > limit) return fault + ": too late: " + report(run);
    wait_until_gone(job);
    for (const std::string& folder : {"runs/" + run, mpi_of(run)}) remove_tree(program_.path(folder));
    return "";
  });
  std::printf("the latest was named after %.2f s, the limit is %d s; phases:", longest_, kLimit);
  for (const auto& [phase, times] : phases_) std::printf(" %s (%d times)", phase.c_str(), times);
  std::printf("\n");
}

/// Ten minutes, 120 times the limit. tests/e2e/missing_rank_test has seconds of it.
TEST_F(StoppedRank, TenMinutesOfGenerationAreNoHang) {
  if (!chaos_in_full()) GTEST_SKIP() << "make chaos runs it";
  prepare_long_model();
  const Scenario s{"long", 2,
                   "model.path=long run.steps=1 rollout.prompts_per_step=9 rollout.samples_per_prompt=8 "
                   "rollout.max_new_tokens=15000 rollout.ignore_eos=true rollout.kv_memory=50000000 "
                   "cluster.watchdog_seconds=5 roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"' "
                   "roles.reference.ranks='\"1\"' "};
  ASSERT_EQ(program_.shell(command(s, "long")), 0) << output();
  EXPECT_GT(program_.metrics("long").back().at("timing_s/gen").get<double>(), 600) << "too few tokens";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
