#pragma once
// Bump allocator for activations and workspaces: blocks of host or device memory, released by mark.
// The same order of calls gives the same addresses. Memory is not cleared. Not thread-safe: one per lane.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "src/core/device.h"
#include "src/core/tensor.h"

namespace temper {

class Arena {
 public:
  struct Mark {
    size_t block = 0;
    int64_t offset = 0;
  };

  explicit Arena(Device device = Device::cpu) : device_(device) {}

  /// Uninitialised memory, 64-byte aligned (256 on a GPU).
  void* allocate(int64_t bytes);
  Tensor make(std::initializer_list<int64_t> shape, DType dtype);
  Tensor zeros(std::initializer_list<int64_t> shape, DType dtype);
  Tensor like(const CTensor& t);

  Mark mark() const { return mark_; }
  void release(Mark mark) { mark_ = mark; }
  int64_t peak_bytes() const { return peak_; }
  Device device() const { return device_; }

 private:
  struct Release {
    Device device = Device::cpu;
    void operator()(char* p) const { device::release(device, p); }
  };
  struct Block {
    std::unique_ptr<char, Release> data;
    int64_t size = 0;
    int64_t before = 0;  // bytes of all earlier blocks
  };
  Device device_;
  std::vector<Block> blocks_;
  Mark mark_;
  int64_t peak_ = 0;
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
