#include "src/core/region.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "src/core/check.h"
#include "src/core/process/out_of_memory.h"

#ifdef TEMPER_CUDA
#include "src/core/gpu/cuda_memory.h"
#endif

namespace temper {
namespace {

/// Where memory of devices that only count would begin: no address of a process, and as aligned as any
/// region.
constexpr int64_t kMetaBase = Region::kStep;
constexpr int64_t kMostBytes = int64_t{1}
                               << 40;  // of one region: addresses cost nothing until they are backed

/// Null where so many are not to be had.
char* reserve_addresses(Device device, int64_t bytes) {
#ifdef TEMPER_CUDA
  if (device == Device::cuda) return cuda_memory::reserve(bytes);
#endif
  CHECK(device == Device::cpu, "this build has no CUDA backend");
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

}  // namespace

Region::~Region() { release(); }

Region& Region::operator=(Region&& other) noexcept {
  release();
  device_ = other.device_;
  use_ = other.use_;
  reserved_ = std::exchange(other.reserved_, nullptr);
  base_ = std::exchange(other.base_, nullptr);
  reserved_bytes_ = std::exchange(other.reserved_bytes_, 0);
  held_ = std::exchange(other.held_, 0);
  pinned_ = std::exchange(other.pinned_, false);
  shared_ = std::exchange(other.shared_, false);
  pieces_ = std::move(other.pieces_);
  return *this;
}

/// A limit on addresses (`ulimit -v`) may leave less.
void Region::reserve() {
  for (reserved_bytes_ = kMostBytes; reserved_bytes_ >= kStep; reserved_bytes_ /= 2) {
    reserved_ = reserve_addresses(device_, reserved_bytes_);
    if (reserved_ != nullptr) break;
  }
  if (reserved_ == nullptr) fail_memory(kStep);
  const auto address = reinterpret_cast<uintptr_t>(reserved_);
  base_ = reserved_ + (kStep - static_cast<int64_t>(address % kStep)) % kStep;
}

void Region::fail_memory(int64_t bytes) const {
  const bool gpu = device_ == Device::cuda;
  const device::GpuMemory memory = gpu ? device::gpu_memory() : device::GpuMemory{};
  throw OutOfMemory(out_of_memory({use_, gpu, bytes, held_, memory.free, memory.total}).problem(), use_);
}

void Region::grow_to(int64_t bytes) {
  if (bytes <= held_) return;
  CHECK(!pinned_ && !(shared_ && held_ > 0), "memory of {} bytes that keeps its size grows to {}", held_,
        bytes);
  const int64_t held = (bytes + kStep - 1) / kStep * kStep, more = held - held_;
  if (counts_only(device_)) {
    base_ = reinterpret_cast<char*>(kMetaBase);  // NOLINT: never read
    held_ = held;
    return;
  }
#ifdef TEMPER_CUDA
  if (shared_) {
    base_ = reserved_ = cuda_memory::allocate_shared(held);
    if (base_ == nullptr) fail_memory(bytes);
    held_ = held;
    return;
  }
#endif
  if (reserved_ == nullptr) reserve();
  if (held > reserved_bytes_ - (base_ - reserved_)) fail_memory(bytes);
#ifdef TEMPER_CUDA
  if (device_ == Device::cuda) {
    while (held_ < bytes) {
      const int64_t piece = held_ < kLargeStep ? std::min(held, kLargeStep) - held_ : kLargeStep;
      uint64_t handle = 0;
      if (!cuda_memory::back(base_ + held_, piece, handle)) fail_memory(bytes);
      pieces_.push_back({handle, piece});
      held_ += piece;
    }
    return;
  }
#endif
  if (::mprotect(base_ + held_, static_cast<size_t>(more), PROT_READ | PROT_WRITE) != 0) fail_memory(bytes);
  // Products of weights that lie on small pages are 5 to 12 % slower: one row of a weight is a page or more.
  // A region of one step often holds a few KiB: the system would clear all of it. Nothing is lost without the
  // advice.
  if (held > kStep) (void)::madvise(base_ + held_, static_cast<size_t>(more), MADV_HUGEPAGE);
  held_ = held;
}

void Region::share() {
  CHECK(held_ == 0, "memory of {} bytes is to be shared", held_);
  shared_ = device_ == Device::cuda;
}

void Region::pin() {
  CHECK(!like_gpu(device_), "memory of a GPU is pinned");
#ifdef TEMPER_CUDA
  if (device_ != Device::cpu || held_ == 0 || pinned_) return;
  cuda_memory::pin(base_, held_);
  pinned_ = true;
#endif
}

void Region::shrink_to(int64_t bytes) {
  if (pinned_ || shared_) return;
#ifdef TEMPER_CUDA
  while (device_ == Device::cuda && !pieces_.empty() && held_ - pieces_.back().bytes >= bytes) {
    held_ -= pieces_.back().bytes;
    cuda_memory::give_back(base_ + held_, pieces_.back().bytes, pieces_.back().handle);
    pieces_.pop_back();
  }
#endif
  const int64_t kept = (bytes + kStep - 1) / kStep * kStep;
  if (device_ == Device::cuda || kept >= held_) return;
  if (device_ == Device::cpu) (void)::madvise(base_ + kept, static_cast<size_t>(held_ - kept), MADV_DONTNEED);
  held_ = kept;
}

void Region::release() noexcept {
  if (reserved_ == nullptr) return;
#ifdef TEMPER_CUDA
  if (std::exchange(shared_, false)) {
    cuda_memory::release_shared(std::exchange(reserved_, nullptr));
    return;
  }
  if (device_ == Device::cuda) {
    char* at = base_;
    for (const Piece& piece : pieces_) {
      cuda_memory::give_back(at, piece.bytes, piece.handle);
      at += piece.bytes;
    }
    cuda_memory::unreserve(reserved_, reserved_bytes_);
    reserved_ = nullptr;
    return;
  }
  if (std::exchange(pinned_, false)) cuda_memory::unpin(base_);
#endif
  (void)::munmap(reserved_, static_cast<size_t>(reserved_bytes_));
  reserved_ = nullptr;
}

}  // namespace temper
