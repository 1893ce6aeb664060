#pragma once
// Resident memory of the ranks of a run, by the steps that it has made, and whether it stays flat.

#include <map>

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {

/// kB; 0 when the process is gone.
inline int64_t resident_kb(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  return 0;
}

class MemoryWatch : public RunFixture {
 protected:
  /// Starts the run, and expects that each of its ranks holds within 1 % the same from step `from` on; of
  /// every `window` steps the largest counts. The last step is the end of the process, too.
  void expect_flat(const std::string& command, const std::string& run, int ranks, int steps, int from,
                   int window) const {
    std::map<pid_t, std::map<int, int64_t>> all_peaks;  // by rank, by the first step of the window
    Background job(program_, command);
    while (job.until([&] {
      const auto step = static_cast<int>(steps_done(run));
      for (const pid_t rank : job.children()) {
        int64_t& peak = all_peaks[rank][step / window * window];
        peak = std::max(peak, resident_kb(rank));
      }
      return true;
    }))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(job.wait(), 0) << output();
    ASSERT_EQ(static_cast<int>(all_peaks.size()), ranks);
    for (const auto& [rank, peaks] : all_peaks) {
      ASSERT_EQ(peaks.count(from), 1u) << "no window begins at step " << from;
      const int64_t first = peaks.at(from);
      for (const auto& [step, peak] : peaks) {
        std::printf("process %d, from step %4d: %6.1f MiB\n", rank, step, static_cast<double>(peak) / 1024);
        if (step < from || step == steps) continue;
        EXPECT_LE(std::abs(peak - first), first / 100) << "kB more or less from step " << step;
      }
    }
  }
};

}  // namespace temper
