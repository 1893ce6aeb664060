// What sampling does on a GPU beside what tests/ops/sample_test.cpp asks of every backend: it draws what the
// CPU draws, and tells rows that nothing can be drawn for without ending the step.

#include "src/ops/sample.h"

#include "src/ops/head.h"
#include "tests/support/check_op.h"
#include "tests/support/normal_block.h"

namespace temper {
namespace {

/// Every seventh id: biased, ruled out, or seen a few times.
std::vector<LogitEdit> some_edits(int64_t V) {
  std::vector<LogitEdit> edits;
  for (int32_t id = 2; id < V; id += 7)
    edits.push_back({id, id % 3, id % 2 == 0, id % 5 == 0 ? -INFINITY : 0.4 * (id % 4)});
  return edits;
}

std::vector<SampleRow> sample_rows(int64_t n, const SampleOptions& options,
                                   std::span<const LogitEdit> edits = {}) {
  std::vector<SampleRow> list;
  for (int64_t i = 0; i < n; ++i)
    list.push_back({{.seed = 9, .data_position = 1000 * i, .sample = static_cast<int32_t>(i % 7)},
                    static_cast<uint32_t>(3 * i),
                    options,
                    i % 3 == 2 ? std::span<const LogitEdit>{} : edits});  // not every row has some
  return list;
}

/// Edits that rule every id out leave token -1; rows beside it do not care.
TEST(GpuSample, NothingLeftToDraw) {
  constexpr int64_t n = 3, D = 64, V = 100;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  std::vector<LogitEdit> none;
  for (int32_t id = 0; id < V; ++id) none.push_back({.id = id, .count = 0, .seen = false, .bias = -INFINITY});
  for (const SampleOptions& options : {SampleOptions{}, {.temperature = 0}, {.top_k = 5}, {.top_p = 0.5}}) {
    ArenaScope scope(c.scratch);
    TestTensor h(c, normal_values(n * D, 1), DType::bf16, {n, D}),
        w(c, normal_values(V * D, 2), DType::bf16, {V, D}), tokens(c, DType::i32, {n}),
        logprob(c, DType::f32, {n});
    std::vector<SampleRow> sampled = sample_rows(n, options);
    sampled[1].edits = none;
    sample(c, tokens, logprob, h, w, place_rows(c, sampled), V);
    const Values drawn = tokens.values();
    EXPECT_GE(drawn[0], 0);
    EXPECT_EQ(drawn[1], -1);
    EXPECT_GE(drawn[2], 0);
  }
}

/// fp32 logits are close on both devices, so the drawn tokens are the same but for near-ties.
TEST(GpuSample, SampleDrawsWhatTheCpuDraws) {
  constexpr int64_t n = 300, D = 64, V = 5001, kSampleable = 4990;
  const Values hidden = round_to(normal_values(n * D, 1), DType::bf16);
  const Values weight = round_to(normal_values(V * D, 2, 0.3), DType::bf16);
  Backend gpu(Device::cuda);
  TestCtx cpu(1, Device::cpu);
  const std::vector<LogitEdit> all_edits = some_edits(V);
  const auto draw = [&](Ctx& c, const SampleOptions& options, std::span<const LogitEdit> edits) {
    ArenaScope scope(c.scratch);
    TestTensor h(c, hidden, DType::f32, {n, D}), w(c, weight, DType::f32, {V, D}), tokens(c, DType::i32, {n}),
        logprob(c, DType::f32, {n});
    const std::vector<SampleRow> sampled = sample_rows(n, options, edits);
    sample(c, tokens, logprob, h, w, place_rows(c, sampled), kSampleable);
    return Many{tokens.values(), logprob.values()};
  };
  for (const SampleOptions& options : {SampleOptions{},
                                       {.temperature = 0},
                                       {.temperature = 0.6},
                                       {.top_k = 1},
                                       {.top_k = 20},
                                       {.top_p = 0.7},
                                       {.min_p = 0.05},
                                       {.temperature = 1.3, .top_k = 50, .top_p = 0.9, .min_p = 0.01},
                                       {.repetition_penalty = 1.4},
                                       {.temperature = 0.7,
                                       .top_p = 0.9,
                                       .repetition_penalty = 0.8,
                                       .frequency_penalty = 0.3,
                                       .presence_penalty = 0.2}})
    for (const std::span<const LogitEdit> edits :
         {std::span<const LogitEdit>{}, std::span<const LogitEdit>(all_edits)}) {
      const Many want = draw(cpu, options, edits), got = draw(gpu.ctx(), options, edits);
      int differing = 0;
      for (size_t i = 0; i < want[0].size(); ++i) {
        if (want[0][i] != got[0][i]) {
          ++differing;
          continue;
        }
        EXPECT_NEAR(want[1][i], got[1][i], 1e-4);
      }
      EXPECT_LE(differing, 1) << "temperature " << options.temperature << " top_k " << options.top_k
                              << " top_p " << options.top_p << " min_p " << options.min_p << ", "
                              << edits.size() << " edits";
    }
}

/// The log-prob of a drawn token has the bits that scoring gives it, whatever rows and filters are beside it.
TEST(GpuSample, SampledLogprobIsTheScoredOne) {
  constexpr int64_t n = 130, D = 1024, V = 20011;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const NormalBlock block;
  for (DType dtype : {DType::bf16, DType::f32})
    for (const SampleOptions& options :
         {SampleOptions{.temperature = 0.8},
          {.temperature = 0.8, .top_k = 40, .top_p = 0.95},
          {.temperature = 0.8, .repetition_penalty = 1.3},
          {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .frequency_penalty = 0.5}}) {
      const bool edited = options.repetition_penalty != 1 || options.frequency_penalty != 0;
      const std::vector<LogitEdit> edits = some_edits(edited ? V : 0);
      ArenaScope scope(c.scratch);
      const Tensor h = c.scratch.make({n, D}, dtype), w = c.scratch.make({V, D}, dtype);
      block.fill(c.device, h, 1, 0, 1);
      block.fill(c.device, w, 0.1, 0, 2);
      TestTensor tokens(c, DType::i32, {n}), logprob(c, DType::f32, {n});
      const std::vector<SampleRow> sampled = sample_rows(n, options, edits);
      sample(c, tokens, logprob, h, w, place_rows(c, sampled), V);
      TestTensor scored(c, DType::f32, {n}), entropy(c, DType::f32, {n}), lse(c, DType::f32, {n});
      logprob_forward(c, scored, entropy, lse, h, w, tokens, options.temperature);
      expect_same_bits("scored log-prob", scored.values(), logprob.values());
      const Values drawn = tokens.values();
      for (int64_t r : {0, 1, 64, 129}) {
        TestTensor one(c, DType::i32, {1}), its(c, DType::f32, {1});
        sample(c, one, its, rows(CTensor(h), r, r + 1), w,
               place_rows(c, std::span(sampled).subspan(static_cast<size_t>(r), 1)), V);
        EXPECT_EQ(one.values()[0], drawn[static_cast<size_t>(r)]);
        EXPECT_EQ(its.values()[0], logprob.values()[static_cast<size_t>(r)]);
      }
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
