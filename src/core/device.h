#pragma once
// Where tensors live, and the few calls on device memory that the rest of temper needs. No CUDA call happens
// before a GPU was asked for, so one binary serves machines with and without a driver; a build without CUDA
// has the same functions and no GPU. Work on a lane (core/lane.h) is in order: copies and kernels of one lane
// need no other synchronisation than `copy_from_device` and Lane::wait.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace temper {

/// `meta` and `meta_cuda` have no memory: arenas of them count what is asked, and work on them does nothing.
/// They say what the same work would take on the CPU and on a GPU.
enum class Device { cpu, cuda, meta, meta_cuda };
inline bool counts_only(Device d) { return d == Device::meta || d == Device::meta_cuda; }
/// Memory lies as on a GPU.
inline bool like_gpu(Device d) { return d == Device::cuda || d == Device::meta_cuda; }
class Lane;

namespace device {

struct Found {
  std::vector<int> gpus;  // those that can run the kernels (compute capability 9.0)
  std::string why;        // when there is none
};
Found find_gpus();
/// Makes GPU `index` the one that this process uses from here on.
void select_gpu(int index);
/// "NVIDIA H200, 132 multiprocessors" of the selected GPU.
std::string gpu_name();
/// The name of the selected GPU that is the same for every process that uses it, whatever number it has
/// there.
std::string gpu_uuid();
/// All memory of a GPU; nothing is started on it. Of the selected one, what nobody has now too.
int64_t gpu_total_bytes(int index);
struct GpuMemory {
  int64_t total = 0, free = 0;
};
GpuMemory gpu_memory();

/// Host memory that a GPU reads at full speed and asynchronously.
void* allocate_pinned(int64_t bytes);
void release_pinned(void* p) noexcept;
struct ReleasePinned {
  void operator()(char* p) const { release_pinned(p); }
};
using PinnedMemory = std::unique_ptr<char, ReleasePinned>;
inline PinnedMemory make_pinned(int64_t bytes) {
  return PinnedMemory(static_cast<char*>(allocate_pinned(bytes)));
}

/// For memory that no lane has work on yet (weights, tables): done when it returns. `from` is host memory.
void upload(Device d, void* to, const void* from, int64_t bytes);
void clear(Device d, void* to, int64_t bytes);

/// Memory of a device as the host reads and writes it: as it lies on the CPU, through two pinned windows on a
/// GPU, where one is copied while the other is worked on. For memory that no lane has work on.
class HostWindows {
 public:
  static constexpr int64_t kBytes = int64_t{8} << 20;
  explicit HostWindows(Device device);
  ~HostWindows();
  HostWindows(const HostWindows&) = delete;
  HostWindows& operator=(const HostWindows&) = delete;

  /// see(window, bytes) over the bytes at `data`, in order.
  void read(const void* data, int64_t bytes, const std::function<void(const char*, int64_t)>& see);
  /// fill(window, at, bytes) over the bytes at `data`, in order; it gives what lies from byte `at` on.
  void write(void* data, int64_t bytes, const std::function<void(char*, int64_t, int64_t)>& fill);

 private:
  struct Window;
  Device device_;
  std::array<std::unique_ptr<Window>, 2> windows_;  // none on the CPU
};

/// `from` is host memory. Pinned memory that kernels work on (Arena::pin) counts as memory of the device,
/// too. If it is pinned it must not change before Lane::wait; else it may at once.
void copy_to_device(Lane& lane, void* to, const void* from, int64_t bytes);
/// `to` is pinned, and holds the data after the next Lane::wait.
void copy_to_pinned(Lane& lane, void* to, const void* from, int64_t bytes);
/// Waits for all earlier work of the lane, then `to` holds the data.
void copy_from_device(Lane& lane, void* to, const void* from, int64_t bytes);
/// Within the device.
void copy(Lane& lane, void* to, const void* from, int64_t bytes);
/// Sets `rows` pieces of `bytes`, `pitch` bytes apart, to a byte.
void fill_rows(Lane& lane, void* to, int value, int64_t bytes, int64_t rows, int64_t pitch);
inline void fill(Lane& lane, void* to, int value, int64_t bytes) {
  fill_rows(lane, to, value, bytes, 1, bytes);
}
/// GPU work recorded once and replayed with one call: the same kernels on the same addresses.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  bool recorded() const { return executable_ != nullptr; }
  /// Records what `work` submits; nothing runs. It may not wait for the GPU nor allocate its memory.
  void record(Lane& lane, const std::function<void()>& work);
  void replay(Lane& lane) const;

 private:
  void* executable_ = nullptr;
};

}  // namespace device
}  // namespace temper
