// A file system on which locks fail, by each error that they may fail with: a run folder has one owner all
// the same, no start is refused for the file system's sake, and the folder of a killed owner is free at
// once.

#include <cerrno>

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

constexpr int kErrors[] = {ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL, EIO, EACCES, EPERM, EBADF, ESTALE};
constexpr const char* kOverrides = "run.max_policy_lag=1 checkpoint.every=1 checkpoint.keep=1 ";
constexpr Scenario kRuns[] = {{"alone", 0, kOverrides}, {"two", 2, kOverrides}};

class Locks : public ChaosRun {
 protected:
  void SetUp() override {
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);  // the others end at once
    ChaosRun::SetUp();
  }
  std::string start(const Scenario& s, const std::string& run, int error,
                    const std::string& more = "") const {
    const std::string shim =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fault_shim.so").string();
    return command(s, run,
                   fmt::format("ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD={} "
                               "TEMPER_FAULT_ROOT=runs/{} TEMPER_FAULT_LOCK={}",
                               shim, run, error)) +
           more;
  }
  std::string check(const Scenario& s, const std::string& run, int error) {
    const std::string fault = fmt::format("{}, locks fail with {}: ", s.name, std::strerror(error));
    {
      Background owner(program_, start(s, run, error, " run.steps=100000 optimizer.schedule=constant"),
                       log_of(run));
      if (!owner.until([&] { return newest_step(run) > 0; }))
        return fmt::format("{}the run does not begin ({}): {}", fault, owner.wait(), printed(run));
      const std::string second = run + "-second.log";
      Background other(program_, start(s, run, error), second);
      const int code = other.wait();
      const std::string said = program_.read(second);
      if (code != static_cast<int>(Exit::busy) || said.find("in use") == std::string::npos ||
          said.find("pid ") == std::string::npos)
        return fmt::format("{}a second start ended with {}: {}", fault, code, said);
      const std::map<int, pid_t> ranks = owner.ranks();
      ::kill(owner.pid(), SIGKILL);
      for (const auto& [rank, process] : ranks) ::kill(process, SIGKILL);
      wait_until_gone(owner);
    }
    const int64_t step = newest_step(run);
    if (const std::string defect = committed_defect(run, 1); !defect.empty()) return fault + defect;
    const Stopwatch watch;
    Background next(program_,
                    start(s, run, error, fmt::format(" optimizer.schedule=constant run.steps={}", step + 1)),
                    log_of(run));
    if (const int code = next.wait(); code != 0 || newest_step(run) <= step)
      return fmt::format("{}the next start ended with {}: {}", fault, code, printed(run));
    if (chaos_in_full() && watch.seconds() > 30) return fault + "the next start waited for a dead owner";
    clear(run);
    return "";
  }
};

TEST_F(Locks, OneOwnerByWhateverErrorTheyFail) {
  constexpr auto kAll = static_cast<int64_t>(std::size(kErrors) * std::size(kRuns));
  run_cases(chaos_count(1, kAll), [&](int64_t number, Draw&) {
    const auto n = static_cast<size_t>(number);
    return check(kRuns[n / std::size(kErrors)], fmt::format("locked-{}", number),
                 kErrors[n % std::size(kErrors)]);
  });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
