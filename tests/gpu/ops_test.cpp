// Every forward op of the CUDA backend against the CPU in fp64, and row by row: a row has the same bits for
// any number of rows beside it.

#include "src/nn/logprob_head.h"
#include "src/ops/attention.h"
#include "src/ops/elementwise.h"
#include "src/ops/embedding.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"
#include "src/ops/norm.h"
#include "src/ops/rope.h"
#include "src/ops/rows.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

Many linear(Ctx& c, DType dtype, const Many& in, int64_t M, int64_t N, int64_t K, bool bias) {
  ArenaScope scope(c.scratch);
  TensorOn x(c, in[0], dtype, {M, K}), w(c, in[1], dtype, {N, K}), b(c, in[2], dtype, {N}),
      y(c, dtype, {M, N});
  linear_forward(c, y, x, w, bias ? CTensor(b) : CTensor{});
  return {y.values()};
}

TEST(GpuOps, Linear) {
  for (const auto& [M, N, K] :
       {std::tuple{1, 8, 16}, {3, 20, 33}, {64, 128, 64}, {65, 96, 192}, {130, 250, 130}, {200, 256, 320}})
    for (bool bias : {false, true}) {
      const Many in{normal_values(M * K, 1), normal_values(N * K, 2), normal_values(N, 3)};
      check_devices(
          fmt::format("linear {}x{}x{}", M, N, K), in,
          [&](Ctx& c, DType dtype, const Many& inputs) { return linear(c, dtype, inputs, M, N, K, bias); });
    }
}

/// Rows of products of real shapes: skinny kernel, cuBLASLt and (through their self-tests) the plain chain.
TEST(GpuOps, LinearRowsHaveTheSameBitsForAnyNumberOfRows) {
  constexpr int64_t kMost = 2048;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const NormalBlock block;
  int64_t compared = 0;
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{6144, 4096},
                             {4096, 4096},
                             {24576, 4096},
                             {4096, 12288},
                             {4096, 1024},
                             {1024, 2048},
                             {6144, 1024},
                             {1024, 3072},
                             {1152, 896},
                             {896, 896},
                             {9728, 896},
                             {896, 4864},
                             {2560, 9728}}) {
    ArenaScope scope(c.scratch);
    const Tensor x = c.scratch.make({kMost, K}, DType::bf16), w = c.scratch.make({N, K}, DType::bf16),
                 b = c.scratch.make({N}, DType::bf16);
    block.fill(c.device, x, 1, 0, 1);
    block.fill(c.device, w, 1, 0, 2);
    block.fill(c.device, b, 1, 0, 3);
    for (const CTensor& bias : {CTensor{}, CTensor(b)}) {
      ArenaScope inner(c.scratch);
      const Tensor whole = c.scratch.make({kMost, N}, DType::bf16),
                   part = c.scratch.make({kMost, N}, DType::bf16);
      linear_forward(c, whole, x, w, bias);
      const std::vector<bf16> want = to_host<bf16>(c, whole);
      for (int64_t M : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 127, 128, 256, 512, 1000, 1024}) {
        const int64_t first = (M * 37) % (kMost - M);
        linear_forward(c, rows(part, 0, M), rows(CTensor(x), first, first + M), w, bias);
        const std::vector<bf16> got = to_host<bf16>(c, rows(CTensor(part), 0, M));
        ASSERT_EQ(std::memcmp(got.data(), want.data() + first * N, got.size() * 2), 0)
            << M << " rows of " << N << " x " << K << (bias.empty() ? "" : " with bias");
        compared += M * N;
      }
    }
  }
  std::printf("linear: 0 of %ld outputs differ\n", compared);
}

TEST(GpuOps, EmbeddingGatherAdd) {
  const std::vector<int32_t> ids = random_ids(37, 50, 4);
  for (int64_t D : {24, 64, 1000})
    check_devices("embedding", {normal_values(50 * D, 1)}, [&](Ctx& c, DType dtype, const Many& in) {
      ArenaScope scope(c.scratch);
      TensorOn w(c, in[0], dtype, {50, D}), tokens(c, ids, {37}), y(c, dtype, {37, D}), z(c, dtype, {37, D}),
          sum(c, dtype, {37, D});
      embedding_forward(c, y, tokens, w);
      gather_rows(c, z, w, tokens);
      add(c, sum, y, z);
      return Many{y.values(), z.values(), sum.values()};
    });
}

TEST(GpuOps, Norm) {
  for (int64_t D : {8, 24, 100, 256, 896, 1024, 4096, 5000})
    check_devices(fmt::format("rmsnorm {}", D), {normal_values(9 * D, 1), normal_values(D, 2, 0.3, 1.0)},
                  [&](Ctx& c, DType dtype, const Many& in) {
                    ArenaScope scope(c.scratch);
                    TensorOn x(c, in[0], dtype, {9, D}), w(c, in[1], dtype, {D}), y(c, dtype, {9, D}),
                        rstd(c, accumulate_dtype(dtype), {9});
                    rmsnorm_forward(c, y, rstd, x, w, 1e-6);
                    return Many{y.values(), rstd.values()};
                  });
}

TEST(GpuOps, HeadNormAndRope) {
  for (const AttentionShape shape :
       {AttentionShape{4, 2, 16}, {3, 1, 24}, {32, 8, 128}, {14, 2, 64}, {8, 8, 256}}) {
    constexpr int64_t T = 11, kPositions = 50;
    const int64_t W = shape.qkv_width(), dh = shape.head_dim;
    const std::vector<int32_t> positions = random_ids(T, kPositions, 8);
    const Many in{normal_values(T * W, 1), normal_values(dh, 2, 0.3, 1.0), normal_values(dh, 3, 0.3, 1.0),
                  uniform_values(kPositions * dh / 2, 4, -1, 1),
                  uniform_values(kPositions * dh / 2, 5, -1, 1)};
    check_devices(fmt::format("heads of {}", dh), in, [&](Ctx& c, DType dtype, const Many& v) {
      ArenaScope scope(c.scratch);
      const DType A = accumulate_dtype(dtype);
      TensorOn x(c, v[0], dtype, {T, W}), wq(c, v[1], dtype, {dh}), wk(c, v[2], dtype, {dh}),
          y(c, dtype, {T, W}), rstd(c, A, {T, shape.q_heads + shape.kv_heads}),
          cosine(c, v[3], A, {kPositions, dh / 2}), sine(c, v[4], A, {kPositions, dh / 2}),
          at(c, positions, {T});
      head_norm_forward(c, y, rstd, x, wq, wk, shape, 1e-6);
      const Values normed = y.values();
      rope_forward(c, y, at, cosine, sine, shape);
      return Many{normed, rstd.values(), y.values()};
    });
  }
}

/// The fused passes give the bits of the separate ones.
TEST(GpuOps, FusedPasses) {
  constexpr int64_t T = 19, D = 1032, kPositions = 40;
  const AttentionShape shape{6, 2, 80};
  const int64_t W = shape.qkv_width(), dh = shape.head_dim;
  const std::vector<int32_t> positions = random_ids(T, kPositions, 8);
  for (Device device : {Device::cpu, Device::cuda})
    for (DType dtype : {DType::f32, DType::bf16}) {
      Backend backend(device);
      Ctx& c = backend.ctx();
      TensorOn a(c, normal_values(T * D, 1), dtype, {T, D}), b(c, normal_values(T * D, 2), dtype, {T, D}),
          w(c, normal_values(D, 3), dtype, {D}), sum(c, dtype, {T, D}), y(c, dtype, {T, D}),
          r(c, DType::f32, {T}), sum2(c, dtype, {T, D}), y2(c, dtype, {T, D}), r2(c, DType::f32, {T});
      add(c, sum, a, b);
      rmsnorm_forward(c, y, r, sum, w, 1e-6);
      add_rmsnorm_forward(c, y2, sum2, r2, a, b, w, 1e-6);
      expect_same_bits("sum", sum2.values(), sum.values());
      expect_same_bits("norm of the sum", y2.values(), y.values());
      expect_same_bits("rstd of the sum", r2.values(), r.values());

      const int64_t heads = shape.q_heads + shape.kv_heads;
      TensorOn x(c, normal_values(T * W, 1), dtype, {T, W}), wq(c, normal_values(dh, 2), dtype, {dh}),
          wk(c, normal_values(dh, 3), dtype, {dh}), q(c, dtype, {T, W}), q2(c, dtype, {T, W}),
          rq(c, DType::f32, {T, heads}), rq2(c, DType::f32, {T, heads}),
          cosine(c, uniform_values(kPositions * dh / 2, 4, -1, 1), DType::f32, {kPositions, dh / 2}),
          sine(c, uniform_values(kPositions * dh / 2, 5, -1, 1), DType::f32, {kPositions, dh / 2}),
          at(c, positions, {T});
      head_norm_forward(c, q, rq, x, wq, wk, shape, 1e-6);
      rope_forward(c, q, at, cosine, sine, shape);
      head_norm_rope_forward(c, q2, rq2, x, wq, wk, {at, cosine, sine}, shape, 1e-6);
      expect_same_bits("rotated heads", q2.values(), q.values());
      expect_same_bits("rstd of heads", rq2.values(), rq.values());
    }
}

/// Keys and values that go to the pages on the way have the bits of those that are appended afterwards.
TEST(GpuOps, HeadsGoToPages) {
  constexpr int64_t T = 7, kPositions = 60, kPage = 16, kPages = 9;
  const std::vector<int32_t> cu{0, 1, 5, 7}, lengths{20, 33, 2}, positions{19, 29, 30, 31, 32, 0, 1},
      table{3, 8, 0, 5, 1, 7, 2, 4, 6};
  for (const AttentionShape shape : {AttentionShape{6, 2, 80}, {4, 4, 128}, {3, 1, 24}})
    for (Device device : {Device::cpu, Device::cuda})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const int64_t W = shape.qkv_width(), dh = shape.head_dim, heads = shape.q_heads + shape.kv_heads;
        Backend backend(device);
        Ctx& c = backend.ctx();
        TensorOn x(c, normal_values(T * W, 1), dtype, {T, W}), wq(c, normal_values(dh, 2), dtype, {dh}),
            wk(c, normal_values(dh, 3), dtype, {dh}), q(c, dtype, {T, W}), q2(c, dtype, {T, W}),
            r(c, DType::f32, {T, heads}), r2(c, DType::f32, {T, heads}),
            cosine(c, uniform_values(kPositions * dh / 2, 4, -1, 1), DType::f32, {kPositions, dh / 2}),
            sine(c, uniform_values(kPositions * dh / 2, 5, -1, 1), DType::f32, {kPositions, dh / 2}),
            at(c, positions, {T}), ends(c, cu, {4}), pages(c, table, {3, 3}), filled(c, lengths, {3});
        const Values empty(static_cast<size_t>(2 * kPages * shape.kv_width() * kPage), 7.0);
        const auto cache = [&] { return TensorOn(c, empty, dtype, {2, kPages, shape.kv_width() * kPage}); };
        TensorOn k = cache(), v = cache(), k2 = cache(), v2 = cache();
        const RopeInput rope{at, cosine, sine};
        head_norm_rope_forward(c, q, r, x, wq, wk, rope, shape, 1e-6);
        append_kv(c, {k, v, pages, filled, kPage}, 1, q, ends, shape);
        head_norm_rope_append(c, q2, r2, {k2, v2, pages, filled, kPage}, 1, x, wq, wk, rope, ends, shape,
                              1e-6);
        expect_same_bits("keys", k2.values(), k.values());
        expect_same_bits("values", v2.values(), v.values());
        expect_same_bits("rstd", r2.values(), r.values());
        const Values want = q.values(), got = q2.values();
        for (int64_t t = 0; t < T; ++t)
          expect_same_bits("queries", slice_rows(got, 1, t * W, t * W + shape.q_width()),
                           slice_rows(want, 1, t * W, t * W + shape.q_width()));
      }
}

/// The product that ends in its SwiGLU has the bits of the two steps, for any number of rows.
TEST(GpuOps, GatedProduct) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const NormalBlock block;
  for (const auto& [F, K] : {std::pair<int64_t, int64_t>{3072, 1024},
                             {12288, 4096},
                             {4864, 896},
                             {64, 128},
                             {1000, 192},
                             {520, 320},
                             {77, 64}})
    for (const bool with_bias : {false, true}) {
      ArenaScope scope(c.scratch);
      constexpr int64_t kMost = 200;
      const Tensor x = c.scratch.make({kMost, K}, DType::bf16), w = c.scratch.make({2 * F, K}, DType::bf16),
                   b = c.scratch.make({2 * F}, DType::bf16),
                   both = c.scratch.make({kMost, 2 * F}, DType::bf16),
                   want = c.scratch.make({kMost, F}, DType::bf16),
                   got = c.scratch.make({kMost, F}, DType::bf16);
      block.fill(c.device, x, 1, 0, 1);
      block.fill(c.device, w, 1 / std::sqrt(static_cast<double>(K)), 0, 2);
      block.fill(c.device, b, 1, 0, 3);
      const CTensor bias = with_bias ? CTensor(b) : CTensor{};
      linear_forward(c, both, x, w, bias);
      swiglu_forward(c, want, both);
      const std::vector<bf16> all = to_host<bf16>(c, want);
      for (int64_t M : {1, 3, 8, 17, 33, 64, 65, 200}) {
        device::fill(c.lane, got.raw(), 0xff, got.bytes());
        linear_swiglu_forward(c, rows(got, 0, M), rows(CTensor(x), kMost - M, kMost), w, bias);
        const std::vector<bf16> some = to_host<bf16>(c, rows(CTensor(got), 0, M));
        EXPECT_EQ(std::memcmp(some.data(), all.data() + (kMost - M) * F, some.size() * 2), 0)
            << M << " rows, " << F << " x " << K << (with_bias ? " with bias" : "");
      }
    }
}

TEST(GpuOps, Swiglu) {
  for (int64_t F : {8, 36, 3072})
    check_devices("swiglu", {normal_values(13 * 2 * F, 1, 4.0)}, [&](Ctx& c, DType dtype, const Many& in) {
      ArenaScope scope(c.scratch);
      TensorOn x(c, in[0], dtype, {13, 2 * F}), a(c, dtype, {13, F});
      swiglu_forward(c, a, x);
      return Many{a.values()};
    });
}

TEST(GpuOps, LogprobAndEntropy) {
  for (const auto& [n, D, V] : {std::tuple{5, 32, 96}, {70, 64, 2048}, {3, 128, 5001}, {200, 64, 9000}})
    for (double temperature : {1.0, 0.7}) {
      const std::vector<int32_t> targets = random_ids(n, V, 3);
      check_devices(
          fmt::format("log-prob of {} ids", V), {normal_values(n * D, 1), normal_values(V * D, 2, 0.3)},
          [&](Ctx& c, DType dtype, const Many& in) {
            ArenaScope scope(c.scratch);
            const DType A = accumulate_dtype(dtype);
            TensorOn h(c, in[0], dtype, {n, D}), w(c, in[1], dtype, {V, D}), t(c, targets, {n}),
                logprob(c, A, {n}), entropy(c, A, {n}), lse(c, A, {n});
            logprob_forward(c, logprob, entropy, lse, h, w, t, temperature);
            return Many{logprob.values(), entropy.values(), lse.values()};
          },
          2e-6, 2e-5);
    }
}

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
TEST(GpuOps, NothingLeftToDraw) {
  constexpr int64_t n = 3, D = 64, V = 100;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  std::vector<LogitEdit> none;
  for (int32_t id = 0; id < V; ++id) none.push_back({.id = id, .count = 0, .seen = false, .bias = -INFINITY});
  for (const SampleOptions& options : {SampleOptions{}, {.temperature = 0}, {.top_k = 5}, {.top_p = 0.5}}) {
    ArenaScope scope(c.scratch);
    TensorOn h(c, normal_values(n * D, 1), DType::bf16, {n, D}),
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
TEST(GpuOps, SampleDrawsWhatTheCpuDraws) {
  constexpr int64_t n = 300, D = 64, V = 5001, kSampleable = 4990;
  const Values hidden = round_to(normal_values(n * D, 1), DType::bf16);
  const Values weight = round_to(normal_values(V * D, 2, 0.3), DType::bf16);
  Backend gpu(Device::cuda);
  TestCtx cpu;
  const std::vector<LogitEdit> all_edits = some_edits(V);
  const auto draw = [&](Ctx& c, const SampleOptions& options, std::span<const LogitEdit> edits) {
    ArenaScope scope(c.scratch);
    TensorOn h(c, hidden, DType::f32, {n, D}), w(c, weight, DType::f32, {V, D}), tokens(c, DType::i32, {n}),
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
TEST(GpuOps, SampledLogprobIsTheScoredOne) {
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
      TensorOn tokens(c, DType::i32, {n}), logprob(c, DType::f32, {n});
      const std::vector<SampleRow> sampled = sample_rows(n, options, edits);
      sample(c, tokens, logprob, h, w, place_rows(c, sampled), V);
      TensorOn scored(c, DType::f32, {n}), entropy(c, DType::f32, {n}), lse(c, DType::f32, {n});
      logprob_forward(c, scored, entropy, lse, h, w, tokens, options.temperature);
      expect_same_bits("scored log-prob", scored.values(), logprob.values());
      const Values drawn = tokens.values();
      for (int64_t r : {0, 1, 64, 129}) {
        TensorOn one(c, DType::i32, {1}), its(c, DType::f32, {1});
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
