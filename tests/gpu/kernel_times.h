#pragma once
// GPU time of what ran on one stream, by the names of kernels and kinds of copies: what CUPTI recorded.

#include <cuda_runtime.h>
#include <cupti.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "src/core/check.h"
#include "src/core/lane.h"

namespace temper {

class KernelTimes {
 public:
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
    return state().streams[stream];
  }

 private:
  static constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                  CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
  struct Streams {
    std::mutex mutex;
    std::map<uint32_t, ByName> streams;
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
  template <class Record>
  static void add(uint32_t stream, const std::string& name, const Record& record) {
    Time& time = state().streams[stream][name];
    time.milliseconds += static_cast<double>(record.end - record.start) * 1e-6;
    ++time.calls;
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

}  // namespace temper
