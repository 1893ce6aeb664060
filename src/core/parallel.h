#pragma once
// Loops over independent pieces of work. Which thread runs a piece never changes a bit of the result, because
// no piece reads what another writes and nothing is summed across pieces.

#include <cstdint>

namespace temper {

/// Threads that share a loop. `count_only`: the memory of a loop's operands is only counted (Device::meta),
/// so its pieces are left out.
struct Threads {
  Threads(int n = 1, bool count = false) : number(n), count_only(count) {}  // NOLINT: a number of threads
  operator int() const { return number; }                                   // NOLINT

  int number;
  bool count_only;
};

/// body(i) for i in [0, count), on up to `threads` threads; never, where they only count.
template <class Body>
void parallel_for(Threads threads, int64_t count, Body&& body) {
  if (threads.count_only) return;
  if (threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for num_threads(threads.number) schedule(dynamic)
  for (int64_t i = 0; i < count; ++i) body(i);
}

/// body(begin, end) over [0, count) cut in ranges of `grain` (the last one may be shorter).
template <class Body>
void parallel_ranges(Threads threads, int64_t count, int64_t grain, Body&& body) {
  const int64_t pieces = (count + grain - 1) / grain;
  parallel_for(threads, pieces, [&](int64_t i) {
    const int64_t begin = i * grain;
    body(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace temper
