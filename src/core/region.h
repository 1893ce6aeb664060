#pragma once
// A range of addresses that is backed by memory from its beginning up to what was asked for: it grows in
// place, never moves, and holds no more than 2 MiB above that. On the CPU pages come from the system, on a
// GPU from its driver; devices that only count have none: addresses are only to tell tensors apart.

#include <cstdint>
#include <vector>

#include "src/core/device.h"
#include "src/core/process/memory_error.h"

namespace temper {

class Region {
 public:
  /// Memory is taken and lost in steps of this size; every region begins at a multiple of it. A large region
  /// of a GPU takes larger ones, alike in all regions, so that what one gives back fits another.
  static constexpr int64_t kStep = int64_t{2} << 20, kLargeStep = int64_t{32} << 20;

  /// Errors name the use.
  explicit Region(Device device, MemoryUse use = MemoryUse::any) : device_(device), use_(use) {}
  /// Work on it has ended: a driver need not wait for it, and memory that is taken away from under a kernel
  /// or a copy is an error of the GPU. (cudaFree waits, cuMemUnmap mostly does.)
  ~Region();
  Region(Region&& other) noexcept { *this = std::move(other); }
  Region& operator=(Region&& other) noexcept;

  /// Backs the first `bytes` bytes. Exit::storage when there is no memory for them.
  void grow_to(int64_t bytes);
  /// Gives back what lies above the first `bytes` bytes, within a step, to the system or to other regions of
  /// the GPU. Work on it has ended.
  void shrink_to(int64_t bytes);
  /// What a region of the host holds becomes memory that kernels of the GPU work on, over the link between
  /// them, at the same addresses. From then on it does not change its size.
  void pin();
  /// The region, which has no memory yet, will be one allocation on a GPU, which other processes of the host
  /// can read (core/gpu/peer_memory.h), and not change its size.
  void share();
  char* base() const { return base_; }
  int64_t held_bytes() const { return held_; }
  Device device() const { return device_; }

 private:
  void reserve();
  void release() noexcept;
  [[noreturn]] void fail_memory(int64_t bytes) const;

  Device device_ = Device::cpu;
  MemoryUse use_ = MemoryUse::any;
  char* reserved_ = nullptr;  // as the system gave it
  char* base_ = nullptr;      // the first multiple of kStep in it
  int64_t reserved_bytes_ = 0;
  int64_t held_ = 0;
  bool pinned_ = false, shared_ = false;
  struct Piece {  // GPU: one allocation of the driver
    uint64_t handle = 0;
    int64_t bytes = 0;
  };
  std::vector<Piece> pieces_;
};

}  // namespace temper
