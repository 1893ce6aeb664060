#include "kernels/cuda/product_times.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/cuda/linear_lt.h"
#include "kernels/cuda/linear_trial.h"

namespace temper::cuda {
namespace {

class Event {
 public:
  Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Lane& lane) const { CUDA_CHECK(cudaEventRecord(event_, stream_of(lane))); }
  double seconds_since(const Event& start) const {
    float ms = 0;
    CUDA_CHECK(cudaEventSynchronize(event_));
    CUDA_CHECK(cudaEventElapsedTime(&ms, start.event_, event_));
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// The shortest time of a run in a few bursts, after one run to warm up.
double seconds_of(const Lane& lane, const std::function<void()>& run) {
  constexpr int kBursts = 4, kRuns = 3;
  const Event start, end;
  run();
  double shortest = std::numeric_limits<double>::infinity();
  for (int burst = 0; burst < kBursts; ++burst) {
    start.record(lane);
    for (int i = 0; i < kRuns; ++i) run();
    end.record(lane);
    shortest = std::min(shortest, end.seconds_since(start) / kRuns);
  }
  return shortest;
}

ProductTime time_of(Ctx& ctx, const Product& shape) {
  Trial trial(ctx.lane, shape);
  const Product& p = trial.product();
  ProductTime time{seconds_of(ctx.lane, [&] { multiply(ctx, p); }), std::numeric_limits<double>::infinity()};
  const LtCall call(libraries_of(ctx), p);
  for (const Candidate& one : call.all(/*in_parts=*/true))
    time.fastest = std::min(time.fastest, seconds_of(ctx.lane, [&] { call.run(one.algorithm); }));
  return time;
}

}  // namespace

LinearTimes time_linear(Ctx& ctx, int64_t tokens, int64_t outputs, int64_t inputs) {
  ArenaScope scope(ctx.scratch);
  const Tensor w = ctx.scratch.make({outputs, inputs}, DType::bf16);
  fill_random(ctx.lane, w.raw(), w.size());
  Product forward{.y = nullptr,
                  .x = nullptr,
                  .w = w.raw(),
                  .bias = nullptr,
                  .M = tokens,
                  .N = outputs,
                  .K = inputs,
                  .pitch = outputs,
                  .in = DType::bf16,
                  .out = DType::bf16};
  Product input = forward, weight = forward;
  input.kind = ProductKind::input_gradient;
  input.N = input.pitch = inputs;
  input.K = outputs;
  weight.kind = ProductKind::weight_gradient;
  weight.w = nullptr;
  weight.M = outputs;
  weight.N = weight.pitch = inputs;
  weight.K = tokens;
  weight.out = DType::f32;
  weight.add = true;
  return {time_of(ctx, forward), time_of(ctx, input), time_of(ctx, weight)};
}

}  // namespace temper::cuda
