// The bits of every forward op of the CUDA backend on fixed inputs, and of experts also back. A digest that
// changes means that logs, checkpoints and rollouts of other builds no longer compare: change
// kernels/cuda/NUMERICS.md with it, and say so.

#include "src/core/digest/hash.h"
#include "src/ops/attention.h"
#include "src/ops/elementwise.h"
#include "src/ops/experts.h"
#include "src/ops/glu.h"
#include "src/ops/head.h"
#include "src/ops/hybrid/delta.h"
#include "src/ops/hybrid/gated_heads.h"
#include "src/ops/hybrid/offset_norm.h"
#include "src/ops/linear.h"
#include "src/ops/norm.h"
#include "src/ops/rope.h"
#include "src/ops/sample.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

/// Random words rounded to the type (integer arithmetic): no libm decides a bit of an input.
Values numbers(int64_t count, uint64_t seed, double scale = 1.0) {
  return uniform_values(count, seed, -scale, scale);
}

std::string digest_of(const std::vector<Values>& outputs) {
  std::string bytes;
  for (const Values& v : outputs)
    bytes.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double));
  return digest_hex(bytes.data(), static_cast<int64_t>(bytes.size()));
}

struct Frozen {
  const char* name;
  DType dtype;
  const char* expected;
  std::vector<Values> (*run)(Ctx&, DType);
};

template <int M, int N, int K>
std::vector<Values> linear(Ctx& c, DType dtype) {
  TestTensor x(c, numbers(M * K, 1), dtype, {M, K}), w(c, numbers(N * K, 2), dtype, {N, K}),
      b(c, numbers(N, 3), dtype, {N}), y(c, dtype, {M, N});
  linear_forward(c, y, x, w, b);
  return {y.values()};
}

template <int M, int F, int K>
std::vector<Values> gated(Ctx& c, DType dtype) {
  TestTensor x(c, numbers(M * K, 1), dtype, {M, K}), w(c, numbers(2 * F * K, 2), dtype, {2 * F, K}),
      b(c, numbers(2 * F, 3), dtype, {2 * F}), a(c, dtype, {M, F});
  linear_swiglu_forward(c, a, x, w, b);
  return {a.values()};
}

std::vector<Values> norms(Ctx& c, DType dtype) {
  constexpr int64_t T = 7, D = 3000;
  TestTensor a(c, numbers(T * D, 1), dtype, {T, D}), b(c, numbers(T * D, 2), dtype, {T, D}),
      w(c, numbers(D, 3), dtype, {D}), sum(c, dtype, {T, D}), y(c, dtype, {T, D}), r(c, DType::f32, {T});
  add_rmsnorm_forward(c, y, sum, r, a, b, w, 1e-6);
  return {sum.values(), y.values(), r.values()};
}

std::vector<Values> heads(Ctx& c, DType dtype) {
  constexpr int64_t T = 9, kPositions = 16;
  const AttentionShape shape{6, 2, 128};
  const int64_t W = shape.qkv_width(), dh = shape.head_dim;
  TestTensor x(c, numbers(T * W, 1), dtype, {T, W}), wq(c, numbers(dh, 2), dtype, {dh}),
      wk(c, numbers(dh, 3), dtype, {dh}), y(c, dtype, {T, W}), r(c, DType::f32, {T, 8}),
      cosine(c, numbers(kPositions * dh / 2, 4), DType::f32, {kPositions, dh / 2}),
      sine(c, numbers(kPositions * dh / 2, 5), DType::f32, {kPositions, dh / 2}),
      at(c, random_ids(T, kPositions, 6), {T});
  head_norm_rope_forward(c, y, r, x, wq, wk, {at, cosine, sine}, shape, 1e-6);
  return {y.values(), r.values()};
}

std::vector<Values> swiglu(Ctx& c, DType dtype) {
  TestTensor x(c, numbers(11 * 512, 1, 8), dtype, {11, 512}), a(c, dtype, {11, 256});
  swiglu_forward(c, a, x);
  return {a.values()};
}

template <int kHeadDim>
std::vector<Values> attention(Ctx& c, DType dtype) {
  const AttentionShape shape{4, 2, kHeadDim};
  const std::vector<int32_t> cu{0, 1, 130, 1500};
  const int64_t T = cu.back();
  TestTensor qkv(c, numbers(T * shape.qkv_width(), 1, 2), dtype, {T, shape.qkv_width()}),
      out(c, dtype, {T, shape.q_width()}), lse(c, DType::f32, {4, T}), ends(c, cu, {4});
  attention_varlen_forward(c, out, lse, qkv, ends, shape, 0.125);
  return {out.values(), lse.values()};
}

/// Decode rows and chunks over scrambled pages whose unused slots are NaN.
template <int kHeadDim>
std::vector<Values> pages(Ctx& c, DType dtype) {
  constexpr int64_t kPage = 16, kPages = 4 * 90;
  const AttentionShape shape{4, 2, kHeadDim};
  const std::vector<int32_t> lengths{2, 130, 1030, 1409};
  TestTensor keys(c, dtype, {1, kPages, shape.kv_width() * kPage}),
      values(c, dtype, {1, kPages, shape.kv_width() * kPage});
  std::vector<int32_t> table;
  for (int64_t i = 0; i < kPages; ++i) table.push_back(static_cast<int32_t>(i * 77 % kPages));
  TestTensor places(c, table, {4, kPages / 4});
  std::vector<int32_t> last;
  for (int32_t n : lengths) last.push_back(n - 1);
  std::vector<Values> all;
  const auto step = [&](const std::vector<int32_t>& cu, const std::vector<int32_t>& filled, uint64_t seed) {
    const int64_t T = cu.back(), W = shape.qkv_width();
    TestTensor qkv(c, numbers(T * W, seed, 2), dtype, {T, W}), out(c, dtype, {T, shape.q_width()}),
        ends(c, cu, {5}), cached(c, filled, {4});
    const PagedKv kv{keys, values, places, cached, kPage};
    append_kv(c, kv, 0, qkv, ends, shape);
    attention_paged(c, out, qkv, kv, 0, ends, shape, 0.125);
    all.push_back(out.values());
  };
  step({0, 1, 130, 1159, 2567}, last, 1);  // prompts but for their last tokens
  step({0, 1, 2, 3, 4}, lengths, 2);
  return all;
}

std::vector<Values> offset_norms(Ctx& c, DType dtype) {
  constexpr int64_t T = 7, D = 3000;
  TestTensor a(c, numbers(T * D, 1), dtype, {T, D}), b(c, numbers(T * D, 2), dtype, {T, D}),
      w(c, numbers(D, 3), dtype, {D}), sum(c, dtype, {T, D}), y(c, dtype, {T, D}), r(c, DType::f32, {T});
  add_offset_norm_forward(c, y, sum, r, a, b, w, 1e-6);
  return {sum.values(), y.values(), r.values()};
}

/// Heads with an output gate, rope over a quarter of them.
std::vector<Values> gated_heads(Ctx& c, DType dtype) {
  constexpr int64_t T = 9, kPositions = 16, kHalf = 32;
  const AttentionShape shape{4, 2, 256};
  const int64_t W = 2 * (shape.q_width() + shape.kv_width()), dh = shape.head_dim;
  TestTensor x(c, numbers(T * W, 1), dtype, {T, W}), wq(c, numbers(dh, 2), dtype, {dh}),
      wk(c, numbers(dh, 3), dtype, {dh}), y(c, dtype, {T, shape.qkv_width()}), r(c, DType::f32, {T, 6}),
      cosine(c, numbers(kPositions * kHalf, 4), DType::f32, {kPositions, kHalf}),
      sine(c, numbers(kPositions * kHalf, 5), DType::f32, {kPositions, kHalf}),
      at(c, random_ids(T, kPositions, 6), {T}),
      o(c, numbers(T * shape.q_width(), 7), dtype, {T, shape.q_width()}),
      gated(c, dtype, {T, shape.q_width()});
  gated_heads_forward(c, y, r, x, wq, wk, {at, cosine, sine}, shape, 1e-6);
  output_gate_forward(c, gated, o, x, shape);
  return {y.values(), r.values(), gated.values()};
}

/// A gated delta net without its products.
template <int kDim>
std::vector<Values> delta_net(Ctx& c, DType dtype) {
  constexpr int64_t kTaps = 4;
  const DeltaShape s{2, 4, kDim, kDim};
  const std::vector<int32_t> cu{0, 1, 130, 400};
  const int64_t T = cu.back(), W = s.projected_width(), C = s.qkv_width(), H = s.value_heads;
  TestTensor x(c, numbers(T * W, 1, 2), dtype, {T, W}), w(c, numbers(C * kTaps, 2), dtype, {C, kTaps}),
      a_log(c, numbers(H, 3), DType::f32, {H}), bias(c, numbers(H, 4), dtype, {H}),
      norm(c, numbers(kDim, 5), DType::f32, {kDim}), ends(c, cu, {4}), qkv(c, dtype, {T, C}),
      beta(c, DType::f32, {T, H}), g(c, DType::f32, {T, H}), o(c, dtype, {T, s.value_width()}),
      u(c, dtype, {T, s.value_width()}), decays(c, DType::f32, {T, H}), y(c, dtype, {T, s.value_width()}),
      r(c, DType::f32, {T, H});
  delta_inputs_forward(c, qkv, beta, g, x, w, a_log, bias, ends, s);
  delta_rule_forward(c, o, u, decays, qkv, beta, g, ends, s);
  gated_norm_forward(c, y, r, o, x, norm, s, 1e-6);
  return {qkv.values(), beta.values(), g.values(), o.values(), u.values(), decays.values(), y.values()};
}

/// A layer of 16 experts, of which 3 take a token, beside a shared one: the router, the products of a width
/// that goes by tensor copies or does not, and both ways back.
template <int kInner>
std::vector<Values> experts(Ctx& c, DType dtype) {
  constexpr int64_t T = 130, E = 16, K = 3, D = 128, kColumns = E + 1, R = T * K;
  TestTensor logits(c, numbers(T * kColumns, 1, 4), DType::f32, {T, kColumns}), ids(c, DType::i32, {T, K}),
      weights(c, DType::f32, {T, K}), offsets(c, DType::i32, {E + 1}), tokens(c, DType::i32, {R}),
      places(c, DType::i32, {T, K}), rows(c, numbers(R * D, 2), dtype, {R, D}),
      w(c, numbers(E * kInner * D, 3), dtype, {E * kInner, D}),
      down(c, numbers(E * D * kInner, 4), dtype, {E * D, kInner}), inner(c, dtype, {R, kInner}),
      made(c, dtype, {R, D}), shared(c, numbers(T * D, 5), dtype, {T, D}), y(c, dtype, {T, D});
  choose_experts(c, ids, weights, logits, E, /*normalize=*/true);
  sort_by_expert(c, offsets, tokens, places, ids);
  expert_linear_forward(c, inner, rows, w, offsets);
  expert_linear_forward(c, made, inner, down, offsets);
  combine_experts(c, y, made, places, weights, shared, logits);

  TestTensor dinner(c, dtype, {R, kInner}), dw(c, DType::f32, {E * kInner, D}), drows(c, dtype, {R, D}),
      dweights(c, DType::f32, {T, K}), dlogits(c, DType::f32, {T, kColumns}), dshared(c, dtype, {T, D}),
      weighed(c, dtype, {R, kInner}), router(c, numbers(T * D, 6), DType::f32, {T, D}), dx(c, dtype, {T, D});
  expert_linear_backward_input(c, dinner, made, down, offsets);
  weigh_expert_rows_backward(c, dinner, weighed, dweights, dinner, inner, places, weights);
  expert_linear_backward_weight(c, dw, dinner, rows, offsets, GradWrite::first);
  expert_linear_backward_input(c, drows, dinner, w, offsets);
  choose_experts_backward(c, dlogits, dweights, ids, weights, logits, E, /*normalize=*/true);
  shared_expert_backward(c, dshared, dlogits, y, shared, logits);
  sum_expert_rows(c, dx, drows, places, router, dshared);
  return {ids.values(),   weights.values(),  inner.values(),   made.values(),    y.values(), dw.values(),
          drows.values(), dweights.values(), dlogits.values(), dshared.values(), dx.values()};
}

std::vector<Values> head(Ctx& c, DType dtype) {
  constexpr int64_t n = 6, D = 64, V = 5000;
  TestTensor h(c, numbers(n * D, 1), dtype, {n, D}), w(c, numbers(V * D, 2), dtype, {V, D}),
      targets(c, random_ids(n, V, 3), {n}), logprob(c, DType::f32, {n}), entropy(c, DType::f32, {n}),
      lse(c, DType::f32, {n}), tokens(c, DType::i32, {n}), drawn(c, DType::f32, {n});
  logprob_forward(c, logprob, entropy, lse, h, w, targets, 0.75);
  std::vector<Values> all{logprob.values(), entropy.values(), lse.values()};
  for (const SampleOptions& options :
       {SampleOptions{.temperature = 0.75}, {.top_k = 30, .top_p = 0.9, .min_p = 0.01}}) {
    std::vector<SampleRow> rows;
    for (uint32_t i = 0; i < n; ++i)
      rows.push_back({{.seed = 5, .data_position = 70000 + i, .sample = 2}, i, options});
    sample(c, tokens, drawn, h, w, place_rows(c, rows), V);
    all.push_back(tokens.values());
    all.push_back(drawn.values());
  }
  return all;
}

const std::vector<Frozen> kFrozen{
    {"linear of 5 rows", DType::bf16, "e4b4cc2693631ffc50399b527afb04e9", linear<5, 512, 1024>},
    {"linear of 200 rows", DType::bf16, "db523af2fef52e790a1d27f9c6e57662", linear<200, 512, 1024>},
    {"linear of odd sizes", DType::bf16, "0d742eb8a717b73798d585213eb523f9", linear<5, 77, 100>},
    {"linear", DType::f32, "93dd9e438bfdafd96c1b337352767de6", linear<70, 77, 100>},
    {"gated product of 5 rows", DType::bf16, "ce2c32b0d6b8c42d838cab5e1defc4de", gated<5, 264, 512>},
    {"norms", DType::bf16, "9858473cdadab0f9114fd9027f928b9a", norms},
    {"norms", DType::f32, "771c2f9092ea0c12e7d0bf8c694067e7", norms},
    {"heads", DType::bf16, "2d84cb811541935fefe657d2610e8c59", heads},
    {"heads", DType::f32, "9751a6833d005888ed079898e33afdd2", heads},
    {"swiglu", DType::bf16, "bbf34b6acd72de8f211fb5c6b2282094", swiglu},
    {"swiglu", DType::f32, "d3af688914b13ba118f8759b0d3c7545", swiglu},
    {"attention, heads of 128", DType::bf16, "424e71879d038560524b4c3361a27d18", attention<128>},
    {"attention, heads of 64", DType::bf16, "56e6963b8835c05b1190ff8cdad1e249", attention<64>},
    {"attention, heads of 80", DType::bf16, "b305ca18fbcd941b934fe7a366bd614d", attention<80>},
    {"attention", DType::f32, "c5d15e727de1a5082e6cafad67a3aa83", attention<64>},
    {"pages, heads of 128", DType::bf16, "488ee04d62ee50f3e9f4906f381eb747", pages<128>},
    {"pages, heads of 64", DType::bf16, "5ac6043c8ec9a0f3f7719ef34aac9fc6", pages<64>},
    {"pages, heads of 80", DType::bf16, "1d3fefd19fa92a8a930e2ff958f648cd", pages<80>},
    {"attention, heads of 256", DType::bf16, "900f1be500386de585126837c81865bd", attention<256>},
    {"pages, heads of 256", DType::bf16, "b0d4ce60006f7c2ae92e495e8d193e47", pages<256>},
    {"norms by 1 + w", DType::bf16, "522f981269f7b6285aba90398d0198fc", offset_norms},
    {"norms by 1 + w", DType::f32, "e477cf75880db08be488d708bd7dfe44", offset_norms},
    {"heads with gates", DType::bf16, "e13e859e8bbdb68a36b0320a28c45fa5", gated_heads},
    {"heads with gates", DType::f32, "3e79a7d94996055e05ca47aac899c9dd", gated_heads},
    {"delta net, heads of 128", DType::bf16, "8af2d753843f452b302d1a3eddde867e", delta_net<128>},
    {"delta net, heads of 40", DType::bf16, "02d63ab4817cea324040c102a86d1845", delta_net<40>},
    {"delta net", DType::f32, "08f8f6aaf616f301c3e4057d9ead2e1e", delta_net<40>},
    {"experts of width 192", DType::bf16, "d83422414f0190a310903c0b50582d08", experts<192>},
    {"experts of width 72", DType::bf16, "172d077b1e2180289d8058b19f0c9136", experts<72>},
    {"experts of width 72", DType::f32, "76bc5091984a389790b2a7103d9e2deb", experts<72>},
    {"head and sampling", DType::bf16, "c4e803b5ce3bd8bce3fdaaa8e98aac23", head},
    {"head and sampling", DType::f32, "a898ccc33335a33897391c4c464ffc2d", head},
};

TEST(GpuFrozen, EveryOpHasItsBits) {
  Backend gpu(Device::cuda);
  for (const Frozen& op : kFrozen) {
    ArenaScope scope(gpu.ctx().scratch);
    const std::string digest = digest_of(op.run(gpu.ctx(), op.dtype));
    std::printf("%-26s %-4s %s\n", op.name, dtype_name(op.dtype), digest.c_str());
    EXPECT_EQ(digest, op.expected) << op.name << ", " << dtype_name(op.dtype);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
