#pragma once
// Where work runs in order: on a GPU a stream with library handles of its own, on the CPU the calling thread.
// Two lanes share nothing, so that what runs on them may overlap.

#include <memory>
#include <utility>

#include "src/core/device.h"
#include "src/core/lane_spans.h"

namespace temper {

/// What a backend keeps for one lane: library handles, their workspaces, plans (kernels/cuda/libraries.h).
struct LaneLibraries {
  virtual ~LaneLibraries() = default;
};

/// What has room on a GPU first, where work of two lanes is ready.
enum class Turn { usual, first };

class Lane {
 public:
  explicit Lane(Device device = Device::cpu, Turn turn = Turn::usual);
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
  bool take_order() {
    if (move_on_ != nullptr && ++launches_ % kAhead == 0) stay_near();
    return std::exchange(ordered_, false);
  }
  /// What comes on this lane begins when all that the other one has now is done, as after `order`. Of the
  /// same device.
  void follow(const Lane& other);
  /// The host waits for all work of this lane; errors of its kernels come out here.
  void wait();
  /// For the end of memory that work of this lane may use: `wait`, but it fails nobody, and where an error
  /// unwinds, after which work may never end, it is nothing.
  void settle() noexcept;
  /// What is queued here waits for other processes from now on, which may wait for messages of this one: its
  /// waits for this lane call `move_on` again and again. Nor does it queue so much that a launch waits for
  /// room, where nothing would be called.
  void set_move_on(void (*move_on)()) { move_on_ = move_on; }
  bool moves_on() const { return move_on_ != nullptr; }

  /// For a timeline; off until it is started.
  LaneSpans& spans() { return spans_; }

  void* stream() const { return stream_; }  // cudaStream_t; null on the CPU
  LaneLibraries* libraries() const { return libraries_.get(); }
  void set_libraries(std::unique_ptr<LaneLibraries> libraries) { libraries_ = std::move(libraries); }

 private:
  /// Launches between two looks at how far the host is ahead: at most twice as many are queued, and a driver
  /// takes about 1,000 with products and copies, which are not counted.
  static constexpr int64_t kAhead = 256;
  void stay_near();

  Device device_;
  bool ordered_ = false;
  void (*move_on_)() = nullptr;
  int64_t launches_ = 0;
  void* near_ = nullptr;  // cudaEvent_t, from the first `stay_near` on
  void* stream_ = nullptr;
  void* event_ = nullptr;  // cudaEvent_t, from the first `follow` on
  LaneSpans spans_;
  std::unique_ptr<LaneLibraries> libraries_;
};

/// Work that is submitted while the object lives; nothing when spans are off. Not inside of a graph.
class LaneSpan {
 public:
  LaneSpan(Lane& lane, const char* name, int64_t number) : lane_(lane) {
    if (lane.spans().on()) index_ = lane.spans().begin(lane, name, number);
  }
  ~LaneSpan() {
    if (index_ >= 0) lane_.spans().end(lane_, index_);
  }
  LaneSpan(const LaneSpan&) = delete;
  LaneSpan& operator=(const LaneSpan&) = delete;

 private:
  Lane& lane_;
  int64_t index_ = -1;
};

}  // namespace temper
