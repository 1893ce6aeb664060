// Generation of hybrid models: the states of their gated delta nets, and the bits of what is generated.

#include "tests/rollout/hybrid_engine.h"

#include <cmath>

#include "tests/rollout/engine_run.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

StateShape shape() { return {hybrid_config(), {{0, 4}}, 1, DType::f32}; }

/// Entry `number` of every layer is NaN throughout, or has none.
bool is_nan(const Tensor& pool, int32_t number) {
  int64_t nans = 0;
  for (int64_t layer = 0; layer < pool.dim(0); ++layer)
    for (int64_t i = 0; i < pool.dim(2); ++i)
      nans += std::isnan(pool.as<float>()[(layer * pool.dim(1) + number) * pool.dim(2) + i]);
  EXPECT_TRUE(nans == 0 || nans == pool.dim(0) * pool.dim(2));
  return nans > 0;
}

void fill(const Tensor& pool, int32_t number, float value) {
  for (int64_t layer = 0; layer < pool.dim(0); ++layer)
    std::fill_n(pool.as<float>() + (layer * pool.dim(1) + number) * pool.dim(2), pool.dim(2), value);
}

TEST(StateCache, ShapesAreThoseOfTheLayers) {
  // q and k of 2 heads of 16, v of 4 heads of 8
  EXPECT_EQ(shape().window_size(), 3 * (2 * 32 + 32));
  EXPECT_EQ(shape().sequence_bytes(), 3 * 4 * (3 * 96 + 64 * (32 + 32 + 4) + 32 * 16));
  const StateShape bf16(hybrid_config(), {{0, 2}, {2, 3}}, 1, DType::bf16);
  EXPECT_EQ(bf16.sequence_bytes(), 2 * (2 * (3 * 96 + 64 * (32 + 32)) + 4 * (64 * 4 + 32 * 16)));
  EXPECT_EQ(StateShape(tiny_config(), {{0, 2}}, 1, DType::bf16).sequence_bytes(), 0);
}

TEST(StateCache, ATailIsCopiedAndASlotIsShared) {
  Lane lane;
  StateCache cache(shape(), 3, /*poison=*/true, lane);
  const DeltaPages pools = cache.view({}, {}, {}, {});
  HeldState a, b;
  cache.advance(a, 0, 64);
  ASSERT_GE(a.slot, 0);
  EXPECT_EQ(a.from, -1);
  for (const Tensor& pool : {pools.windows, pools.keys, pools.writes, pools.decays}) fill(pool, a.tail, 2);
  fill(pools.states, a.slot, 3);
  cache.advance(a, 64, 30);
  EXPECT_EQ(a.from, a.slot);
  cache.fork(a, b);
  EXPECT_NE(a.tail, b.tail);
  EXPECT_EQ(a.slot, b.slot);
  for (const Tensor& pool : {pools.windows, pools.keys, pools.writes, pools.decays})
    EXPECT_EQ(pool.as<float>()[b.tail * pool.dim(2)], 2);
  const int32_t tail = a.tail, slot = a.slot;
  cache.drop(a);
  EXPECT_TRUE(a.empty());
  EXPECT_TRUE(is_nan(pools.keys, tail));
  EXPECT_FALSE(is_nan(pools.states, slot)) << "another sequence has it";
  cache.drop(b);
  EXPECT_TRUE(is_nan(pools.states, slot));
  EXPECT_EQ(cache.free_tails(), 3);
  EXPECT_EQ(cache.free_slots(), 3);
}

/// All samples of a prompt fill their first chunk in one step: what they read stays until it is through.
TEST(StateCache, NobodyWritesWhatAStepReads) {
  Lane lane;
  StateCache cache(shape(), 4, /*poison=*/true, lane);
  std::vector<HeldState> samples(4);
  cache.advance(samples[0], 0, 100);
  for (size_t i = 1; i < 4; ++i) cache.fork(samples[0], samples[i]);
  const int32_t shared = samples[0].slot;
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(cache.can_advance(samples[i], 100, 28));
    cache.advance(samples[i], 100, 28);
    EXPECT_EQ(samples[i].from, shared);
    EXPECT_NE(samples[i].slot, shared);
  }
  EXPECT_TRUE(cache.can_advance(samples[3], 100, 27)) << "no chunk gets full";
  EXPECT_FALSE(cache.can_advance(samples[3], 100, 28)) << "its slot is read, and all others are taken";
  for (HeldState& s : samples) cache.settle(s);
  ASSERT_TRUE(cache.can_advance(samples[3], 100, 28));
  cache.advance(samples[3], 100, 28);
  EXPECT_EQ(samples[3].slot, shared) << "nobody else has it any more";
  EXPECT_EQ(cache.free_slots(), 0);
  for (HeldState& s : samples) cache.drop(s);
  EXPECT_EQ(cache.free_slots(), 4);
}

TEST(StateCache, MisuseIsCaught) {
  Lane lane;
  StateCache cache(shape(), 1, /*poison=*/true, lane);
  HeldState a, b;
  expect_error(Exit::internal, {"fork of a state"}, "of nothing", [&] { cache.fork(a, b); });
  cache.advance(a, 0, 1);
  expect_error(Exit::internal, {"no free tail of 1"}, "too many", [&] { cache.advance(b, 0, 1); });
  expect_error(Exit::internal, {"fork of a state"}, "too many", [&] { cache.fork(a, b); });
}

TEST(HybridEngine, TokensHaveTheBitsOfPackedOnes) {
  EXPECT_GT(expect_packed_bits(1, 100, 150) + expect_packed_bits(1000, 10, 700), 50);
}

TEST(HybridEngine, TokensThatGoToExpertsHaveThem) {
  EXPECT_GT(expect_packed_bits(2000, 24, 150, hybrid_moe_config()), 5);
}

/// More samples than states: those that get none wait, and are drawn as the others are.
TEST(HybridEngine, AGroupMayBeLargerThanTheStates) {
  const auto model = tiny_model_of(hybrid_config(), DType::bf16);
  Lane lane;
  EngineOptions few = engine_options();
  few.num_states = 3;
  Engine small(*model, few, lane), large(*model, engine_options(), lane);
  const std::vector<Request> requests{tiny_request(0, 70, 8), tiny_request(1, 5, 2)};
  const GenerateOptions options = generate_options(80);
  const Output got = run(small, requests, options), want = run(large, requests, options);
  for (size_t i = 0; i < requests.size(); ++i)
    for (size_t k = 0; k < want.groups[i].size(); ++k) {
      EXPECT_EQ(got.groups[i][k].tokens, want.groups[i][k].tokens) << i << " " << k;
      EXPECT_EQ(got.groups[i][k].logprobs, want.groups[i][k].logprobs) << i << " " << k;
    }
  EXPECT_EQ(want.counters.rows_recomputed, 0);
  EXPECT_EQ(want.counters.rows_shared, 7 * 70 + 5);
  EXPECT_EQ(got.counters.rows_shared, 2 * 70 + 5);
  EXPECT_EQ(got.counters.rows_recomputed, 5 * 70);
}

TEST(HybridEngine, IsWholeAfterAnException) {
  const auto model = tiny_model_of(hybrid_config(), DType::f32);
  Lane lane;
  EngineOptions few = engine_options(/*num_pages=*/12);
  few.num_states = 4;
  Engine engine(*model, few, lane);
  const std::vector<Request> requests{tiny_request(0, 60, 2), tiny_request(1, 40, 3)};
  const GenerateOptions options = generate_options(30);
  const Output before = run(engine, requests, options);
  Backend backend(Device::cpu);
  const auto interrupted = [&](size_t, std::vector<Response>) { throw std::runtime_error("stop"); };
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW(engine.generate(backend.ctx(), requests, options, nullptr, interrupted), std::runtime_error);
  const Output after = run(engine, requests, options);
  for (size_t i = 0; i < requests.size(); ++i)
    for (size_t k = 0; k < before.groups[i].size(); ++k)
      EXPECT_EQ(after.groups[i][k].tokens, before.groups[i][k].tokens) << i << " " << k;
  EXPECT_EQ(after.counters.preemptions, before.counters.preemptions) << "states are missing";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
