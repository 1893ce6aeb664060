#pragma once
// What the CPU benches measure with: medians of wall time, and what the core itself can do at that moment.
//
// Shares of the multiply-add peak are taken right after each call, at the clock that the call left: products
// draw more power than chains in registers, which alone reach a higher clock.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/cpu/linear_vec.h"
#include "src/core/parallel.h"

namespace temper::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double seconds_of(F&& f) {
  const double start = now();
  f();
  return now() - start;
}

/// The time that a tenth of the calls kept: the very best may be a jump of the clock.
inline double fast(std::vector<double> times) {
  const auto tenth = times.begin() + static_cast<int64_t>(times.size() / 10);
  std::nth_element(times.begin(), tenth, times.end());
  return *tenth;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Calls f as often as fits in `budget` seconds, three times at least.
template <class F>
void repeat(double budget, F&& f) {
  const double end = now() + budget;
  for (int i = 0; i < 3 || now() < end; ++i) f();
}

template <class F>
double fast_seconds(double budget, F&& f) {
  std::vector<double> times;
  repeat(budget, [&] { times.push_back(seconds_of(f)); });
  return fast(times);
}

/// kPeakFlop: of one call of multiply_add_chains, in fp32.
inline constexpr int64_t kPeakChains = 10, kPeakSteps = 1 << 20;
inline constexpr double kPeakFlop = 2.0 * kPeakChains * kPeakSteps * cpu::Vec<float>::kWidth;

/// Independent chains of multiply-adds in registers. Not inlined, so that every bench has the same loop.
[[gnu::noinline]] inline void multiply_add_chains() {
  using V = cpu::Vec<float>;
  V acc[kPeakChains];
  for (V& a : acc) a = V::all(1.0f);
  V x = V::all(0.999f), y = V::all(1e-3f);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    cpu::keep_in_register(x);
    cpu::keep_in_register(y);
#pragma GCC unroll 16
    for (V& a : acc) a = fma(a, x, y);
  }
  float sink[V::kWidth];
  for (int64_t i = 1; i < kPeakChains; ++i) acc[0] = acc[0] + acc[i];
  acc[0].store(sink);
  if (sink[0] == 0.5f) std::puts("");
}

/// The medians of many calls: the time of one, and its share of the peak that the threads have right after
/// it.
struct Speed {
  double seconds = 0, share = 0;
  double peak(double flop) const { return flop / seconds / share; }
};

/// f does `flop` on `threads` threads.
template <class F>
Speed speed_of(double flop, const Threads& threads, F&& f) {
  std::vector<double> times, shares;
  f();
  repeat(0.6, [&] {
    times.push_back(seconds_of(f));
    const double chains =
        seconds_of([&] { parallel_for(threads, threads, [](int64_t) { multiply_add_chains(); }); });
    shares.push_back(flop / times.back() / (threads * kPeakFlop / chains));
  });
  return {median(times), median(shares)};
}

inline constexpr int64_t kPassRow = 8 * cpu::Vec<float>::kWidth;

/// A plain sum over whole rows of kPassRow floats.
inline void sum_pass(const float* memory, int64_t count) {
  using V = cpu::Vec<float>;
  V acc[8];
  for (V& a : acc) a = V::zero();
  for (int64_t i = 0; i + kPassRow <= count; i += kPassRow)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) acc[j] = acc[j] + V::load(memory + i + j * V::kWidth);
  float sink[V::kWidth];
  for (int j = 1; j < 8; ++j) acc[0] = acc[0] + acc[j];
  acc[0].store(sink);
  if (sink[0] == 0.5f) std::puts("");
}

}  // namespace temper::bench
