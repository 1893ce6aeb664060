#pragma once
// How near to the rate of a plain copy ops are that do little but move bytes.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "src/core/cuda.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/read_rate.h"

namespace temper {

inline constexpr int64_t kSets = 8;

/// Times of ops, in shares of the rate of a copy; prints Markdown rows.
class Bencher {
 public:
  explicit Bencher(double copy) : copy_(copy) {
    CUDA_CHECK(cudaEventCreate(&start_));
    CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Bencher() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  Bencher(const Bencher&) = delete;
  Bencher& operator=(const Bencher&) = delete;

  Ctx& c() { return gpu_.ctx(); }
  Tensor normal(std::initializer_list<int64_t> shape, DType dtype, double mean = 0) {
    const Tensor t = c().scratch.make(shape, dtype);
    block_.fill(Device::cuda, t, 1, mean, ++seed_);
    return t;
  }
  /// run(set) kSets times between two events; the median of nine.
  template <class Run>
  void measure(const std::string& name, double bytes, Run&& run) {
    const auto all = [&] {
      for (int64_t set = 0; set < kSets; ++set) run(set);
    };
    all();
    report(name, bytes, all);
  }
  /// The same in a graph, as decode runs.
  template <class Run>
  void measure_in_graph(const std::string& name, double bytes, Run&& run) {
    device::Graph graph;
    run(0);
    graph.record(c().lane, [&] {
      for (int64_t set = 0; set < kSets; ++set) run(set);
    });
    report(name, bytes, [&] { graph.replay(c().lane); });
  }

 private:
  template <class All>
  void report(const std::string& name, double bytes, All&& all) {
    std::vector<float> times(9);
    for (float& ms : times) {
      CUDA_CHECK(cudaEventRecord(start_, stream_of(c().lane)));
      all();
      CUDA_CHECK(cudaEventRecord(end_, stream_of(c().lane)));
      CUDA_CHECK(cudaEventSynchronize(end_));
      CUDA_CHECK(cudaEventElapsedTime(&ms, start_, end_));
    }
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    const double seconds = times[4] * 1e-3 / kSets;
    std::printf("| %s | %.1f us | %.0f GB/s | %.0f %% of a copy |\n", name.c_str(), seconds * 1e6,
                bytes / seconds * 1e-9, 100 * bytes / seconds / copy_);
  }

  double copy_;
  Backend gpu_{Device::cuda};
  NormalBlock block_;
  int64_t seed_ = 0;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

}  // namespace temper
