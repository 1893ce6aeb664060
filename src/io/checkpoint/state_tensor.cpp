// The bytes of a piece of state as checkpoints store them, a window at a time, whatever a rank holds it in.

#include <algorithm>
#include <cstring>

#include "src/io/checkpoint/checkpoint.h"

namespace temper {
namespace {

constexpr int64_t kConverted = int64_t{1} << 20;  // elements

/// `elements` in runs of at most kConverted.
template <class Run>
void in_runs(FlatRange elements, Run&& run) {
  for (int64_t at = elements.begin; at < elements.end; at += kConverted)
    run(FlatRange{at, std::min(elements.end, at + kConverted)});
}

/// What a tensor of the elements `held` has of `elements`.
Tensor part(const Tensor& t, FlatRange held, FlatRange elements) {
  return rows(t, elements.begin - held.begin, elements.end - held.begin);
}

/// One of the two halves of fp32 elements.
using Halves = std::vector<uint16_t>;
Halves read_halves(const Tensor& t, device::HostWindows& windows) {
  Halves halves(static_cast<size_t>(t.size()));
  auto* to = reinterpret_cast<char*>(halves.data());
  windows.read(t.data, t.bytes(), [&](const char* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    to += bytes;
  });
  return halves;
}
void write_halves(const Tensor& t, const Halves& halves, device::HostWindows& windows) {
  const auto* from = reinterpret_cast<const char*>(halves.data());
  windows.write(t.raw(), t.bytes(), [&](char* to, int64_t at, int64_t bytes) {
    std::memcpy(to, from + at, static_cast<size_t>(bytes));
  });
}

}  // namespace

void StateTensor::read(FlatRange elements, device::HostWindows& windows,
                       const std::function<void(const char*, int64_t)>& see) const {
  const Tensor held = part(data, range, elements);
  if (!converted()) return windows.read(held.data, held.bytes(), see);
  std::vector<float> stored;
  in_runs(elements, [&](FlatRange run) {
    const Halves high = read_halves(part(data, range, run), windows);
    Halves low(high.size(), 0);
    if (!remainder.empty()) low = read_halves(part(remainder, range, run), windows);
    stored.resize(high.size());
    for (size_t i = 0; i < stored.size(); ++i) stored[i] = joined_master(high[i], low[i]);
    see(reinterpret_cast<const char*>(stored.data()), run.size() * int64_t{sizeof(float)});
  });
}

void StateTensor::write(FlatRange elements, device::HostWindows& windows,
                        const std::function<void(char*, int64_t, int64_t)>& fill) const {
  const Tensor held = part(data, range, elements);
  if (!converted()) return windows.write(held.raw(), held.bytes(), fill);
  std::vector<float> stored;
  in_runs(elements, [&](FlatRange run) {
    stored.resize(static_cast<size_t>(run.size()));
    fill(reinterpret_cast<char*>(stored.data()), (run.begin - elements.begin) * int64_t{sizeof(float)},
         run.size() * int64_t{sizeof(float)});
    const bool whole = remainder.empty();
    Halves half(stored.size());
    std::transform(stored.begin(), stored.end(), half.begin(), whole ? bf16_bits : master_weight);
    write_halves(part(data, range, run), half, windows);
    if (whole) return;
    std::transform(stored.begin(), stored.end(), half.begin(), master_remainder);
    write_halves(part(remainder, range, run), half, windows);
  });
}

}  // namespace temper
