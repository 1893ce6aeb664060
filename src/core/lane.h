#pragma once
// Where work runs in order: on a GPU a stream with library handles of its own, on the CPU the calling thread.
// Two lanes share nothing, so that what runs on them may overlap.

#include <memory>
#include <utility>

#include "src/core/device.h"

namespace temper {

/// What a backend keeps for one lane: library handles, their workspaces, plans (kernels/cuda/libraries.h).
struct LaneLibraries {
  virtual ~LaneLibraries() = default;
};

class Lane {
 public:
  explicit Lane(Device device = Device::cpu);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Device device() const { return device_; }
  /// Kernels may read what is constant to them (weights, page tables, keys of earlier steps) before the
  /// kernel ahead of them has ended. Whoever wrote such data on this lane with a kernel calls this: the next
  /// launch then waits until all work before it has ended. A copy between host and device does the same by
  /// itself.
  void order() { ordered_ = true; }
  /// For launches: whether this one has to wait; answers once for each `order`.
  bool take_order() { return std::exchange(ordered_, false); }
  /// The host waits for all work of this lane; errors of its kernels come out here.
  void wait();

  void* stream() const { return stream_; }  // cudaStream_t; null on the CPU
  LaneLibraries* libraries() const { return libraries_.get(); }
  void set_libraries(std::unique_ptr<LaneLibraries> libraries) { libraries_ = std::move(libraries); }

 private:
  Device device_;
  bool ordered_ = false;
  void* stream_ = nullptr;
  std::unique_ptr<LaneLibraries> libraries_;
};

}  // namespace temper
