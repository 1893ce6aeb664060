#pragma once
// Bump allocator for activations, workspaces and what a model holds, in host or device memory; released by
// mark. The same order of calls gives the same addresses. It holds what was ever in use at once since it was
// trimmed, within 2 MiB (core/region.h). Memory is not cleared. Not thread-safe: one per lane.

#include <cstdint>
#include <initializer_list>

#include "src/core/lane.h"
#include "src/core/region.h"
#include "src/core/tensor.h"

namespace temper {

class Arena {
 public:
  using Mark = int64_t;

  explicit Arena(Device device = Device::cpu, MemoryUse use = MemoryUse::any) : region_(device, use) {}

  /// Uninitialised memory, 64-byte aligned (256 on a GPU).
  void* allocate(int64_t bytes);
  Tensor make(std::initializer_list<int64_t> shape, DType dtype);
  Tensor like(const CTensor& t);
  /// Zeros, for memory that lasts: no lane may have work on it yet.
  Tensor zeros(std::initializer_list<int64_t> shape, DType dtype);

  Mark mark() const { return used_; }
  void release(Mark mark) { used_ = mark; }
  /// Most bytes ever in use at once.
  int64_t peak_bytes() const { return peak_; }
  /// Gives back what is not in use now, when the lane has done its work with it: no other may have any.
  void trim(Lane& lane);
  /// Memory of a GPU that others may have for a while: all of it keeps its addresses and loses its content,
  /// until `resume`. The lane as for `trim`. Host memory stays as it is.
  void suspend(Lane& lane);
  void resume() {
    region_.grow_to(suspended_);
    suspended_ = 0;
  }
  /// Host memory that kernels of the GPU work on (core/region.h): nothing more is allocated.
  void pin() { region_.pin(); }
  /// Before anything is allocated: other processes can read its memory (core/region.h), which never grows.
  void share() { region_.share(); }
  int64_t held_bytes() const { return region_.held_bytes(); }
  Device device() const { return region_.device(); }

 private:
  Region region_;
  int64_t used_ = 0, peak_ = 0, suspended_ = 0;
};

/// Everything allocated while a scope lives is given back at its end.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace temper
