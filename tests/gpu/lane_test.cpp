// Kernels that read weights ahead of their turn: right after a writer that called Lane::order, wrong without;
// lanes beside each other, and the end of one.

#include "src/core/stopwatch.h"
#include "src/ops/linear.h"
#include "src/rollout/kv_cache.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/late_writer.h"

namespace temper {
namespace {

constexpr int64_t kWidth = 1024, kOutputs = 256;

/// The product of one row with weights that a late writer puts in place of others just before.
class LateWeights {
 public:
  LateWeights()
      : old_(c(), normal_values(kOutputs * kWidth, 1), DType::bf16, {kOutputs, kWidth}),
        new_(c(), normal_values(kOutputs * kWidth, 2), DType::bf16, {kOutputs, kWidth}),
        x_(c(), normal_values(kWidth, 3), DType::bf16, {1, kWidth}),
        w_(c(), DType::bf16, {kOutputs, kWidth}) {}

  Values with(const CTensor& w) {
    TestTensor y(c(), DType::bf16, {1, kOutputs});
    linear_forward(c(), y, x_, w, {});
    return y.values();
  }
  Lane& lane() { return c().lane; }
  Values with_new() { return with(new_); }
  Values with_old() { return with(old_); }
  Values after_late_write(bool order) {
    device::copy(c().lane, static_cast<Tensor>(w_).raw(), static_cast<CTensor>(old_).data,
                 static_cast<CTensor>(old_).bytes());
    with(w_);  // the self-test of the shape is behind us
    TestTensor y(c(), DType::bf16, {1, kOutputs});
    c().lane.wait();
    copy_late(c().lane, w_, new_);
    if (order) c().lane.order();
    linear_forward(c(), y, x_, w_, {});
    return y.values();
  }

 private:
  Ctx& c() { return gpu_.ctx(); }
  Backend gpu_{Device::cuda};
  TestTensor old_, new_, x_, w_;
};

/// Spans lie in the host's time, one after the other; off they cost nothing and tell nothing.
TEST(Lane, SpansTellWhenWorkRan) {
  LateWeights late;
  Lane& lane = late.lane();
  { const LaneSpan off(lane, "not asked for", 0); }
  const Stopwatch clock;
  lane.spans().start(lane, [&] { return clock.seconds(); });
  const double started = clock.seconds();
  for (int64_t i = 0; i < 3; ++i) {
    const LaneSpan span(lane, "product", i);
    late.with_new();
  }
  lane.wait();
  const double ended = clock.seconds();
  const std::vector<LaneSpans::Span> spans = lane.spans().take();
  EXPECT_FALSE(lane.spans().on());
  ASSERT_EQ(spans.size(), 3u);
  constexpr double kClocks = 1e-3;  // they are read one after the other
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(spans[i].name, fmt::format("product {}", i));
    EXPECT_LE(spans[i].begin, spans[i].end);
    EXPECT_GE(spans[i].begin, (i > 0 ? spans[i - 1].end : started) - kClocks);
    EXPECT_LE(spans[i].end, ended + kClocks);
  }
  lane.spans().start(lane, [&] { return clock.seconds(); });
  EXPECT_TRUE(lane.spans().take().empty()) << "those of the start before";
}

TEST(Lane, OrderHoldsBackWhatReadsAhead) {
  LateWeights late;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(late.after_late_write(/*order=*/true), late.with_new());
}

/// Were this equal, the test above could not fail: the product must really read ahead.
TEST(Lane, WithoutOrderTheProductReadsAhead) {
  LateWeights late;
  EXPECT_NE(late.after_late_write(/*order=*/false), late.with_new());
}

/// Work of two lanes does not wait for each other: the second ends while the first is still at it.
TEST(Lane, LanesAreIndependent) {
  Backend first(Device::cuda), second(Device::cuda);
  TestTensor from(first.ctx(), normal_values(1024, 1), DType::f32, {1024}),
      to(first.ctx(), Values(1024, 0.0), DType::f32, {1024}),
      other(second.ctx(), normal_values(1024, 2), DType::f32, {1024});
  first.ctx().lane.wait();
  copy_late(first.ctx().lane, to, from);
  Values seen(1024);
  {
    const std::vector<double> read = to_host<double>(second.ctx(), to);  // ordered after nothing of the first
    seen.assign(read.begin(), read.end());
  }
  EXPECT_EQ(seen, Values(1024, 0.0));
  EXPECT_EQ(to.values(), from.values());
}

/// What is still queued when a backend goes runs on its memory: a fault would be every lane's.
TEST(Lane, MemoryOfABackendGoesAfterItsWork) {
  Backend stays(Device::cuda);
  const Values numbers = round_to(normal_values(1024, 1), DType::f32);
  {
    Backend goes(Device::cuda);
    TestTensor from(goes.ctx(), numbers, DType::f32, {1024}), to(goes.ctx(), DType::f32, {1024});
    goes.ctx().lane.wait();
    copy_late(goes.ctx().lane, to, from);
    const Tensor again = to;
    device::fill(goes.ctx().lane, again.raw(), 0, again.bytes());
  }
  EXPECT_EQ(TestTensor(stays.ctx(), numbers, DType::f32, {1024}).values(), numbers);
}

/// So does memory that an arena gives back, and that of a cache whose pages were freed last: the driver need
/// not wait for what is queued before it takes memory away.
TEST(Lane, MemoryIsGivenBackAfterItsWork) {
  Backend works(Device::cuda), stays(Device::cuda);
  Lane& lane = works.ctx().lane;
  const Values numbers = round_to(normal_values(1024, 1), DType::f32);
  const TestTensor from(works.ctx(), numbers, DType::f32, {1024}), to(works.ctx(), DType::f32, {1024});
  Arena memory(Device::cuda);
  const Tensor lent = memory.make({1 << 20}, DType::f32);
  lane.wait();
  const auto busy = [&] {  // some milliseconds
    copy_late(lane, to, from);
    device::fill(lane, lent.raw(), 0, lent.bytes());
  };
  const auto seconds = [](const auto& call) {
    const Stopwatch watch;
    call();
    return watch.seconds();
  };
  constexpr double kLate = 2e-3;
  busy();
  EXPECT_GT(seconds([&] { memory.suspend(lane); }), kLate);
  EXPECT_EQ(memory.held_bytes(), 0);
  memory.resume();
  busy();
  memory.release(0);
  EXPECT_GT(seconds([&] { memory.trim(lane); }), kLate);
  auto cache = std::make_unique<KvCache>(KvShape(2, 32, DType::f32), 64, 16, /*poison=*/true, lane);
  const int32_t page = cache->take();
  lane.wait();
  copy_late(lane, to, from);
  cache->release(page);
  EXPECT_GT(seconds([&] { cache.reset(); }), kLate);
  EXPECT_EQ(to.values(), numbers);
  EXPECT_EQ(TestTensor(stays.ctx(), numbers, DType::f32, {1024}).values(), numbers);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
