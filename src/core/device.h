#pragma once
// Where tensors live, and the few calls on device memory that the rest of temper needs. No CUDA call happens
// before a GPU was asked for, so one binary serves machines with and without a driver; a build without CUDA
// has the same functions and no GPU. Work on a lane (core/lane.h) is in order: copies and kernels of one lane
// need no other synchronisation than `copy_from_device` and Lane::wait.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace temper {

/// `meta` has no memory: arenas of it count what is asked, and work on it does nothing.
enum class Device { cpu, cuda, meta };
class Lane;

namespace device {

struct Found {
  int count = 0;    // GPUs that can run the kernels (compute capability 9.0)
  std::string why;  // when there is none
};
Found find_gpus();
/// Makes GPU `index` the one that this process uses from here on.
void select_gpu(int index);
/// "NVIDIA H200, 132 multiprocessors" of the selected GPU.
std::string gpu_name();

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

/// `from` is host memory. If it is pinned it must not change before Lane::wait; else it may at once.
void copy_to_device(Lane& lane, void* to, const void* from, int64_t bytes);
/// `to` is pinned, and holds the data after the next Lane::wait.
void copy_to_pinned(Lane& lane, void* to, const void* from, int64_t bytes);
/// Waits for all earlier work of the lane, then `to` holds the data.
void copy_from_device(Lane& lane, void* to, const void* from, int64_t bytes);
/// `rows` pieces of `bytes`, each `pitch` bytes after the one before on its side, within the device.
void copy_rows(Lane& lane, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t bytes,
               int64_t rows);
inline void copy(Lane& lane, void* to, const void* from, int64_t bytes) {
  copy_rows(lane, to, bytes, from, bytes, bytes, 1);
}
/// Sets `rows` pieces of `bytes`, `pitch` bytes apart, to a byte.
void fill_rows(Lane& lane, void* to, int value, int64_t bytes, int64_t rows, int64_t pitch);
inline void fill(Lane& lane, void* to, int value, int64_t bytes) {
  fill_rows(lane, to, value, bytes, 1, bytes);
}
int64_t free_bytes();  // of the selected GPU

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
