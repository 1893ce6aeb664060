#pragma once
// GPU time of what ran on one stream, by the names of kernels and kinds of copies: what CUPTI recorded.

#include <cuda_runtime.h>
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/check.h"
#include "src/core/lane.h"

namespace temper {

class KernelTimes {
 public:
  /// A kernel may begin while the one before it runs, and wait for it: its time begins where that one ends.
  struct Time {
    double milliseconds = 0;
    int64_t calls = 0;
  };
  using ByName = std::map<std::string, Time>;

  /// One at a time in a process.
  KernelTimes() {
    state() = {};
    check(cuptiActivityRegisterCallbacks(give_buffer, take_records), "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : kKinds) check(cuptiActivityEnable(kind), "cuptiActivityEnable");
  }
  ~KernelTimes() {
    for (const CUpti_ActivityKind kind : kKinds) (void)cuptiActivityDisable(kind);
  }
  /// The times of all work of the lane since the start. Waits for it.
  ByName of(Lane& lane) {
    lane.wait();
    check(cuptiActivityFlushAll(1), "cuptiActivityFlushAll");
    uint32_t stream = 0;
    CUcontext current = nullptr;
    check(cuptiGetStreamIdEx(current, static_cast<CUstream>(lane.stream()), 0, &stream),
          "cuptiGetStreamIdEx");
    const std::lock_guard lock(state().mutex);
    return by_name(state().streams[stream]);
  }

 private:
  struct Record {
    std::string name;
    uint64_t start, end;
  };
  static constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                  CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
  struct Streams {
    std::mutex mutex;
    std::map<uint32_t, std::vector<Record>> streams;
    Streams& operator=(const Streams&) {
      streams.clear();
      return *this;
    }
  };
  static Streams& state() {
    static Streams all;
    return all;
  }
  static void check(CUptiResult result, const char* call) {
    CHECK(result == CUPTI_SUCCESS, "{} returned {}", call, static_cast<int>(result));
  }
  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
    constexpr size_t kBytes = size_t{8} << 20;
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
    *bytes = kBytes;
    *most_records = 0;
  }
  static ByName by_name(std::vector<Record>& records) {
    std::ranges::stable_sort(records, {}, &Record::end);
    ByName times;
    uint64_t until = 0;  // the end of those before
    for (const Record& r : records) {
      Time& time = times[r.name];
      time.milliseconds += static_cast<double>(r.end - std::clamp(until, r.start, r.end)) * 1e-6;
      ++time.calls;
      until = r.end;
    }
    return times;
  }
  template <class Activity>
  static void add(uint32_t stream, const std::string& name, const Activity& activity) {
    state().streams[stream].push_back({name, activity.start, activity.end});
  }
  static void CUPTIAPI take_records(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    const std::lock_guard lock(state().mutex);
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        add(kernel.streamId, kernel.name, kernel);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
        const bool within = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
        add(copy.streamId, within ? "copy within the GPU" : "copy from or to the host", copy);
      } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        add(fill.streamId, "fill", fill);
      }
    }
    std::free(buffer);
  }
};

/// "delta_backward::reverse_kernel<128, 8>" of a kernel's symbol.
inline std::string readable(const std::string& symbol) {
  const std::unique_ptr<char, decltype(&std::free)> whole(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), &std::free);
  std::string name = whole ? whole.get() : symbol;
  for (const std::string_view left_out : {"(anonymous namespace)::", "temper::cuda::", "void "})
    for (size_t at = name.find(left_out); at != std::string::npos; at = name.find(left_out, at))
      name.erase(at, left_out.size());
  return name.substr(0, name.find('('));
}

/// Prints the `most` names with the longest times, a row each, and the sum of all.
inline void print_longest(const KernelTimes::ByName& times, size_t most) {
  std::vector<std::pair<std::string, KernelTimes::Time>> rows(times.begin(), times.end());
  std::ranges::sort(rows, std::greater<>{}, [](const auto& row) { return row.second.milliseconds; });
  double all = 0;
  for (const auto& [name, time] : rows) all += time.milliseconds;
  std::printf("%.2f ms of GPU time in all\n", all);
  for (size_t i = 0; i < std::min(most, rows.size()); ++i)
    std::printf("| %s | %ld calls | %.2f ms | %.1f %% |\n", rows[i].first.c_str(), rows[i].second.calls,
                rows[i].second.milliseconds, 100 * rows[i].second.milliseconds / all);
}

}  // namespace temper
