#pragma once
// What the ranks of a run hold, by the steps that it has made, and whether it stays flat: resident memory,
// open descriptors, threads, and memory of the GPU, which nothing else may use meanwhile.

#include <map>

#include "src/core/device.h"
#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {

/// A number of /proc/PID/status; 0 when the process is gone.
inline int64_t status_of(pid_t process, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  return 0;
}

inline int64_t open_descriptors(pid_t process) {
  std::error_code gone;
  std::filesystem::directory_iterator at(fmt::format("/proc/{}/fd", process), gone);
  return gone ? 0 : std::distance(begin(at), end(at));
}

class MemoryWatch : public RunFixture {
 protected:
  /// Starts the run, and expects that each of its ranks holds within 1 % the same from step `from` on. Of
  /// every `window` steps the most memory counts, and the fewest descriptors and threads: a checkpoint has
  /// some of its own for a moment. The last step is the end of the process, too.
  void expect_flat(const std::string& command, const std::string& run, int ranks, int steps, int from,
                   int window, bool on_gpu = false) const {
    std::map<pid_t, std::map<int, Held>> all_peaks;  // by rank, by the first step of the window
    Background job(program_, command);
    while (job.until([&] {
      const auto step = static_cast<int>(steps_done(run));
      for (const pid_t rank : job.children())
        all_peaks[rank][step / window * window].take(held(rank, on_gpu));
      return true;
    }))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(job.wait(), 0) << output();
    ASSERT_EQ(static_cast<int>(all_peaks.size()), ranks);
    for (const auto& [rank, peaks] : all_peaks) {
      ASSERT_EQ(peaks.count(from), 1u) << "no window begins at step " << from;
      for (const auto& [step, peak] : peaks) {
        std::printf(
            "process %d, from step %4d: %6.1f MiB, %2ld descriptors, %2ld threads, %7.1f MiB of the GPU\n",
            rank, step, static_cast<double>(peak.resident_kb) / 1024, peak.descriptors, peak.threads,
            static_cast<double>(peak.gpu_bytes) / (1 << 20));
        if (step >= from && step != steps) expect_near(peak, peaks.at(from), step);
      }
    }
  }

 private:
  struct Held {
    int64_t resident_kb = 0, gpu_bytes = 0;
    int64_t descriptors = std::numeric_limits<int64_t>::max(), threads = descriptors;

    void take(const Held& other) {
      resident_kb = std::max(resident_kb, other.resident_kb);
      gpu_bytes = std::max(gpu_bytes, other.gpu_bytes);
      descriptors = std::min(descriptors, other.descriptors);
      threads = std::min(threads, other.threads);
    }
  };

  static Held held(pid_t rank, bool on_gpu) {
    const device::GpuMemory gpu = on_gpu ? device::gpu_memory() : device::GpuMemory{};
    return {.resident_kb = status_of(rank, "VmRSS"),
            .gpu_bytes = gpu.total - gpu.free,
            .descriptors = open_descriptors(rank),
            .threads = status_of(rank, "Threads")};
  }
  static void expect_near(const Held& now, const Held& first, int step) {
    const auto near = [&](int64_t value, int64_t wanted, const char* what) {
      EXPECT_LE(std::abs(value - wanted), wanted / 100) << what << " more or less from step " << step;
    };
    near(now.resident_kb, first.resident_kb, "kB");
    near(now.descriptors, first.descriptors, "descriptors");
    near(now.threads, first.threads, "threads");
    near(now.gpu_bytes, first.gpu_bytes, "bytes of the GPU");
  }
};

}  // namespace temper
