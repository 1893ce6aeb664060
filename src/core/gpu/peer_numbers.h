#pragma once
// Numbers in host memory that lanes of several processes of one host write and wait for: how copies between
// their GPUs take turns without a host that waits. The process itself writes them, too, which needs no lane.

#include <cstdint>
#include <memory>
#include <string>

#include "src/core/lane.h"

namespace temper::device {

class PeerNumbers {
 public:
  /// `count` numbers, all 0, for the selected GPU. Null where the host shares no memory (/dev/shm) with it.
  static std::unique_ptr<PeerNumbers> make(int64_t count);
  /// Those that another process of the host made, by its name for them. Null where it cannot be found.
  static std::unique_ptr<PeerNumbers> open(const std::string& name, int64_t count);
  ~PeerNumbers();
  PeerNumbers(const PeerNumbers&) = delete;
  PeerNumbers& operator=(const PeerNumbers&) = delete;

  const std::string& name() const { return name_; }
  /// All that are to open them have: nothing is left of the name when processes are killed.
  void forget_name();

  /// In order of a lane. A wait ends once the number is at least `least`, by the difference of the two, so
  /// that numbers may go through zero.
  void write(Lane& lane, int64_t number, uint32_t value) const;
  void wait(Lane& lane, int64_t number, uint32_t least) const;
  /// Where kernels find it.
  const uint32_t* on_gpu(int64_t number) const { return reinterpret_cast<const uint32_t*>(address(number)); }
  /// By the host, at once.
  void set(int64_t number, uint32_t value) const;
  uint32_t get(int64_t number) const;

 private:
  PeerNumbers() = default;
  static std::unique_ptr<PeerNumbers> map(int file, int64_t count);
  uint64_t address(int64_t number) const { return on_gpu_ + static_cast<uint64_t>(number * kApart); }
  uint32_t& on_host(int64_t number) const { return *reinterpret_cast<uint32_t*>(base_ + number * kApart); }

  static constexpr int64_t kApart = 64;  // bytes between two: a line of a cache each
  std::string name_;
  char* base_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t on_gpu_ = 0;  // where kernels see base_
};

}  // namespace temper::device
