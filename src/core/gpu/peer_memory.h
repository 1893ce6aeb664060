#pragma once
// Memory of a GPU that another process of the same host reads and writes where it lies (CUDA's inter-process
// memory): over NVLink or PCIe between two GPUs, within the GPU where both processes use one.

#include <memory>
#include <string>
#include <string_view>

namespace temper::device {

/// Tells hosts apart, also those of one name.
std::string host_id();
/// What another process opens the memory by; `base`: of a region that is shared (Region::share), with memory.
/// Empty where the driver shares none.
std::string memory_handle(const void* base);

/// Opened while the object lives, which is to end before the memory does.
class PeerMemory {
 public:
  /// For the selected GPU. Null where it cannot read it: the process is on another host, in a container of
  /// its own, or the GPUs have no path between them.
  static std::unique_ptr<PeerMemory> open(std::string_view handle);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  char* base() const { return base_; }

 private:
  explicit PeerMemory(char* base) : base_(base) {}
  char* base_;
};

}  // namespace temper::device
