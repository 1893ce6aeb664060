#pragma once
// What every op needs and nothing else: where it runs and in which order, memory for what dies soon and for
// what backward reads, how many threads.

#include <vector>

#include "src/core/arena.h"
#include "src/core/lane.h"
#include "src/core/parallel.h"

namespace temper {

struct Ctx {
  Arena& scratch;  // temporaries: given back where the function that asked for them ends
  Lane& lane;
  Threads threads = {};
  Arena* saved = nullptr;  // what a forward keeps for its backward; null where nothing is kept
  Device device = lane.device();

  /// Where a result goes that backward reads (`keep`), or nobody after the caller.
  Arena& memory(bool keep) const { return keep ? *saved : scratch; }
};

/// Host data where the ops of this context read it: the same memory on the CPU, and for Device::meta, whose
/// ops read integers; a copy in scratch on a GPU, and counted as such for Device::meta_cuda.
inline CTensor to_device(Ctx& c, const CTensor& host) {
  if (!like_gpu(c.device)) return host;
  const Tensor copy = c.scratch.like(host);
  device::copy_to_device(c.lane, copy.raw(), host.data, host.bytes());
  return copy;
}

/// Values of a tensor of the context's device (zeros where there is none); waits for them. Types as stored,
/// or fp32 widened to double.
template <class T>
std::vector<T> to_host(const Ctx& c, const CTensor& t) {
  std::vector<T> values(static_cast<size_t>(t.size()));
  device::copy_from_device(c.lane, values.data(), t.as<T>(), t.bytes());
  return values;
}
template <>
inline std::vector<double> to_host(const Ctx& c, const CTensor& t) {
  if (t.dtype == DType::f32) {
    const std::vector<float> narrow = to_host<float>(c, t);
    return {narrow.begin(), narrow.end()};
  }
  std::vector<double> values(static_cast<size_t>(t.size()));
  device::copy_from_device(c.lane, values.data(), t.as<double>(), t.bytes());
  return values;
}

}  // namespace temper
