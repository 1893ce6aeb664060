// Every file call of a step, its save and its export goes wrong once, of calls that are alike three: no
// space, a failing device, half of a write, a kill before it or in the middle of it. The program says so or
// goes on, what was committed stays, and the next start makes the run of which no call failed. A preloaded
// library counts the calls and lets the n-th go wrong.

#include <cmath>
#include <sstream>

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

/// The run without a fault keeps the checkpoint that the others begin at.
constexpr Scenario kWhole = {"saves", 2, "run.max_policy_lag=1 checkpoint.every=1 checkpoint.keep=3 "};
constexpr Scenario kFaulty = {"saves", 2, "run.max_policy_lag=1 checkpoint.every=1 checkpoint.keep=1 "};
constexpr int kBefore = kChaosSteps - 1;

struct Fault {
  int rank = 0;
  int64_t call = 0;
  std::string kind = {}, what = {};  // ENOSPC, EIO ...; the call and its path
  double seconds = 0;                // of a fsync, for each MiB
};

class SaveFaults : public ChaosRun {
 protected:
  void SetUp() override {
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);
    ChaosRun::SetUp();
  }

  /// The run stands as it did after the save of step 4.
  void begin_at_save(const std::string& run) {
    std::filesystem::copy(program_.path("runs/" + whole(kWhole)), program_.path("runs/" + run),
                          std::filesystem::copy_options::recursive);
    for (const char* file : {"checkpoints/{}", "export/{}", "rollouts/{}.jsonl"})
      remove_tree(program_.path(
          fmt::format("runs/{}/{}", run, fmt::format(fmt::runtime(file), step_name(kChaosSteps)))));
  }
  std::string variables(const std::string& run, const Fault& fault) const {
    const std::string shim =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fault_shim.so").string();
    return fmt::format(
        "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD={} TEMPER_FAULT_ROOT=runs/{} "
        "TEMPER_FAULT_FROM={} TEMPER_FAULT_RANK={} TEMPER_FAULT_CALL={} TEMPER_FAULT={} "
        "TEMPER_FAULT_SECONDS={} TEMPER_FAULT_LOG={}",
        shim, run, step_name(kChaosSteps), fault.rank, fault.call, fault.kind, fault.seconds,
        program_.path(run + ".faults"));
  }
  std::vector<std::string> fault_lines(const std::string& run) const {
    std::vector<std::string> lines;
    std::ifstream file(program_.path(run + ".faults"));
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  /// Lines "NUMBER CALL [w] PATH". Of those of one call on one path the first, the last, and one between
  /// them.
  static std::vector<std::string> chosen(const std::vector<std::string>& lines, Draw& draw) {
    std::map<std::string, std::vector<std::string>> alike;
    for (const std::string& line : lines) alike[line.substr(line.find(' '))].push_back(line);
    std::vector<std::string> some;
    for (const auto& [call, all] : alike) {
      some.push_back(all.front());
      if (all.size() > 1) some.push_back(all.back());
      if (all.size() > 2)
        some.push_back(all[static_cast<size_t>(1 + draw.below(static_cast<int64_t>(all.size()) - 2))]);
    }
    return some;
  }

  /// All that can go wrong with the calls of this rank that are chosen.
  std::vector<Fault> faults_of(int rank) {
    const std::string run = fmt::format("counted-{}", rank);
    begin_at_save(run);
    Background job(program_, command(kFaulty, run, variables(run, {.rank = rank})), log_of(run));
    if (job.wait() != 0) throw std::runtime_error(printed(run));
    Draw draw(static_cast<uint64_t>(chaos_number("CHAOS_SEED", 1)), static_cast<uint64_t>(rank));
    const std::vector<std::string> calls = fault_lines(run), some = chosen(calls, draw);
    std::vector<Fault> all;
    for (const std::string& line : some) {
      std::istringstream words(line);
      Fault f{.rank = rank};
      std::string name, needs_space;
      words >> f.call >> name >> needs_space;
      f.what = line.substr(line.find(name));
      std::vector<const char*> kinds{"EIO", "KILL"};
      if (needs_space == "w") kinds.push_back("ENOSPC");
      if (name == "write" || name == "pwrite") kinds.insert(kinds.end(), {"SHORT", "TORN"});
      for (const char* kind : kinds) {
        f.kind = kind;
        all.push_back(f);
      }
    }
    std::printf("rank %d: %zu of %zu file calls, %zu faults\n", rank, some.size(), calls.size(), all.size());
    return all;
  }

  std::string check(const Fault& fault, const std::string& run) {
    begin_at_save(run);
    int code = 0;
    {
      Background job(program_, command(kFaulty, run, variables(run, fault)), log_of(run));
      code = job.wait();
      wait_until_gone(job);
    }
    const std::string where =
        fmt::format("{} at call {} of rank {}: {}", fault.kind, fault.call, fault.rank, fault.what);
    const bool killed = fault.kind == "KILL" || fault.kind == "TORN";
    const bool told = code == static_cast<int>(Exit::storage) || code == static_cast<int>(Exit::busy);
    if (code != 0 && !(killed ? code == 128 + SIGKILL : told))
      return fmt::format("{}: the run ended with {}: {}", where, code, printed(run));
    if (code != 0 && fault.kind == "SHORT") return where + ": a short write is no error: " + printed(run);
    const std::string said = printed(run);
    if (const std::string defect = committed_defect(run, kBefore); !defect.empty())
      return fmt::format("{}: {}\n{}", where, defect, said);
    // A run that has ended as it should needs no other start.
    const bool done = code == 0 && unfinished(kFaulty, run).empty();
    const std::string wrong = done ? "" : finish_and_compare(kFaulty, run);
    if (done) clear(run);
    std::filesystem::remove(program_.path(run + ".faults"));
    return wrong.empty() ? "" : fmt::format("{}: {}\nbefore: {}", where, wrong, said);
  }

  /// A file that cannot be looked at is there: the new checkpoint's manifest, as it is read back.
  void fail_a_look(const std::vector<Fault>& faults) {
    const auto look = std::find_if(faults.begin(), faults.end(), [](const Fault& f) {
      return f.kind == "EIO" && f.what.starts_with("stat ") && f.what.ends_with("step-000005/manifest.json");
    });
    ASSERT_NE(look, faults.end()) << "nobody looks at the manifest";
    begin_at_save("looked-at");
    EXPECT_EQ(program_.shell(command(kFaulty, "looked-at", variables("looked-at", *look))),
              static_cast<int>(Exit::storage))
        << output();
  }
};

TEST_F(SaveFaults, EveryFileCallGoesWrongOnce) {
  std::vector<Fault> faults = faults_of(0);
  fail_a_look(faults);
  for (Fault& f : faults_of(1)) faults.push_back(std::move(f));
  const auto all = static_cast<int64_t>(faults.size());
  ASSERT_GT(all, 0);
  // A few of them: spread over all.
  const int64_t count = std::min(all, chaos_count(14, all));
  run_cases(count, [&](int64_t number, Draw& draw) {
    const int64_t begin = number * all / count, end = (number + 1) * all / count;
    return check(faults[static_cast<size_t>(begin + draw.below(end - begin))],
                 fmt::format("fault-{}", number));
  });
}

/// The watch ends it, and does not wait for the same disk itself.
TEST_F(SaveFaults, AFsyncWithoutEndIsAHang) {
  const std::string watched = std::string(kFaulty.overrides) + "cluster.watchdog_seconds=2 ";
  for (const int ranks : {1, 2}) {
    if (ranks == 2 && !chaos_in_full()) continue;
    const Scenario hangs{"saves", ranks == 1 ? 0 : ranks, watched.c_str()};
    const std::string run = fmt::format("hangs-{}", ranks);
    begin_at_save(run);
    Background job(program_, command(hangs, run, variables(run, {.kind = "HANG"})), log_of(run));
    EXPECT_EQ(job.wait(), static_cast<int>(Exit::hang)) << printed(run);
    EXPECT_NE(printed(run).find("rank 0 on host "), std::string::npos) << printed(run);
    EXPECT_NE(printed(run).find("makes no progress in "), std::string::npos) << printed(run);
    EXPECT_EQ(committed_defect(run, kBefore), "");
  }
}

/// The disk takes a file of the save in more than the limit, piece by piece.
TEST_F(SaveFaults, AFsyncThatIsSlowByBytesIsNoHang) {
  constexpr double kLimit = 3, kSeconds = 4.5;
  const std::string watched =
      fmt::format("{} cluster.watchdog_seconds={} ", kFaulty.overrides, static_cast<int>(kLimit));
  for (const int ranks : {1, 2}) {
    if (ranks == 2 && !chaos_in_full()) continue;
    const Scenario slow{"saves", ranks == 1 ? 0 : ranks, watched.c_str()};
    const std::string run = fmt::format("slow-{}", ranks);
    begin_at_save(run);
    double bytes = 0;  // of a rank
    for (const char* file : {"rank-0000.h5", "rank-0001.h5"})
      bytes += static_cast<double>(
                   std::filesystem::file_size(program_.path(join_path(checkpoint(run, kBefore), file)))) /
               ranks;
    const Stopwatch watch;
    Background job(
        program_,
        command(slow, run, variables(run, {.kind = "SLOW", .seconds = kSeconds / bytes * (1 << 20)})),
        log_of(run));
    EXPECT_EQ(job.wait(), 0) << printed(run);
    EXPECT_GT(watch.seconds(), kLimit) << "no fsync was slow";
    EXPECT_EQ(committed_defect(run, kChaosSteps), "");
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
