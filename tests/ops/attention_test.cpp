// Attention of the CPU against plain fp64 formulas, against a scalar reading of NUMERICS.md bit for bit, and
// against itself: alone and beside neighbours, on one thread and on two, over pages that sequences share.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "src/ops/backend.h"
#include "tests/ops/attention_reference.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class S>
S not_a_number() {
  return S(std::numeric_limits<float>::quiet_NaN());
}

/// Rows at the borders of blocks and splits, and some between.
std::vector<int64_t> interesting_rows(const std::vector<int32_t>& cu, int64_t every) {
  std::vector<int64_t> rows;
  for (size_t s = 0; s + 1 < cu.size(); ++s)
    for (int64_t u = 0, length = cu[s + 1] - cu[s]; u < length; ++u)
      if (u % 1024 < 2 || u % 1024 == 1023 || u == length - 1 ||
          (u + 7 * static_cast<int64_t>(s)) % every == 0)
        rows.push_back(cu[s] + u);
  return rows;
}

/// Largest differences of the forward from fp64: out and lse.
template <class S>
std::pair<double, double> forward_errors(const PackedBatch<S>& b, int64_t every) {
  double out_error = 0, lse_error = 0;
  for (int64_t t : interesting_rows(b.cu, every))
    for (int64_t h = 0; h < b.shape.q_heads; ++h) {
      const ReferenceRow row = plain_row(b, t, h);
      for (int64_t d = 0; d < b.shape.head_dim; ++d)
        out_error = std::max(
            out_error,
            std::abs(as_double(b.out[static_cast<size_t>(t * b.shape.q_width() + h * b.shape.head_dim + d)]) -
                     row.out[static_cast<size_t>(d)]));
      lse_error =
          std::max(lse_error, std::abs(as_double(b.lse[static_cast<size_t>(h * b.tokens() + t)]) - row.lse));
    }
  return {out_error, lse_error};
}

const std::vector<AttentionShape> kShapes = {{1, 1, 8},  {4, 1, 16},   {7, 1, 24},  {2, 2, 64}, {8, 2, 128},
                                             {4, 4, 80}, {14, 2, 256}, {70, 1, 16}, {2, 1, 4},  {4, 2, 100}};
const std::vector<int> kRagged = {1, 127, 128, 129, 1023, 1024, 1025, 2100};

template <class S>
void expect_forward_near_plain(double out_bound, double lse_bound) {
  double out_worst = 0, lse_worst = 0;
  const auto test = [&](const AttentionShape& shape, const std::vector<int>& lengths, int64_t every) {
    PackedBatch<S> b(shape, lengths);
    b.forward();
    const auto [out_error, lse_error] = forward_errors(b, every);
    EXPECT_LT(out_error, out_bound) << "dh " << shape.head_dim << ", " << shape.q_heads << " heads";
    EXPECT_LT(lse_error, lse_bound) << "dh " << shape.head_dim << ", " << shape.q_heads << " heads";
    out_worst = std::max(out_worst, out_error), lse_worst = std::max(lse_worst, lse_error);
  };
  for (const AttentionShape& shape : kShapes) test(shape, {1, 17, 128, 0, 129, 300}, 11);
  for (const AttentionShape& shape : {AttentionShape{7, 1, 64}, AttentionShape{4, 4, 16}})
    test(shape, kRagged, 97);
  std::printf("largest error: out %.2e, lse %.2e\n", out_worst, lse_worst);
}

CPU_TEST(AttentionForward, Fp64IsThePlainFormula) { expect_forward_near_plain<double>(1e-13, 1e-13); }
CPU_TEST(AttentionForward, Fp32IsNearThePlainFormula) { expect_forward_near_plain<float>(4e-6, 4e-6); }
CPU_TEST(AttentionForward, Bf16IsNearThePlainFormula) { expect_forward_near_plain<bf16>(1.6e-2, 4e-6); }

/// Values of the kernel that differ from a scalar computation in the given order.
template <class S>
int64_t differing_values(const PackedBatch<S>& b, const Order& order, int64_t every) {
  using A = Accumulate<S>;
  int64_t differing = 0;
  for (int64_t t : interesting_rows(b.cu, every))
    for (int64_t h = 0; h < b.shape.q_heads; ++h) {
      const std::vector<A> expected = ScalarRow<S>(b, t, h, order).run();
      const S* out = b.out.data() + t * b.shape.q_width() + h * b.shape.head_dim;
      for (int64_t d = 0; d < b.shape.head_dim; ++d)
        differing +=
            std::memcmp(&out[d], std::array{S(expected[static_cast<size_t>(d)])}.data(), sizeof(S)) != 0;
      differing +=
          std::memcmp(&b.lse[static_cast<size_t>(h * b.tokens() + t)], &expected.back(), sizeof(A)) != 0;
    }
  return differing;
}

template <class S>
void expect_numerics_page() {
  for (const AttentionShape& shape : kShapes) {
    PackedBatch<S> b(shape, {1, 40, 128, 129, 300}, 5);
    b.forward();
    EXPECT_EQ(differing_values(b, {}, 11), 0) << "dh " << shape.head_dim << ", " << shape.q_heads << " heads";
  }
  PackedBatch<S> b({4, 2, 64}, kRagged, 6);
  b.forward();
  EXPECT_EQ(differing_values(b, {}, 53), 0);
  EXPECT_GT(differing_values(b, {.block = 64}, 311), 0);
  EXPECT_GT(differing_values(b, {.split = 512}, 311), 0);
  EXPECT_GT(differing_values(b, {.split = 1 << 20}, 311), 0);
  EXPECT_GT(differing_values(b, {.descending_values = true}, 311), 0);
  EXPECT_GT(differing_values(b, {.descending_features = true}, 311), 0);
  EXPECT_GT(differing_values(b, {.one_sum = true}, 311), 0);
  EXPECT_GT(differing_values(b, {.fold_in_pairs = true}, 311), 0);
  if (kDTypeOf<S> == DType::bf16) {
    EXPECT_GT(differing_values(b, {.round_probabilities = false}, 311), 0);
  }
}

CPU_TEST(AttentionForward, Fp32HasTheBitsOfTheNumericsPage) { expect_numerics_page<float>(); }
CPU_TEST(AttentionForward, Bf16HasTheBitsOfTheNumericsPage) { expect_numerics_page<bf16>(); }
CPU_TEST(AttentionForward, Fp64HasTheBitsOfTheNumericsPage) { expect_numerics_page<double>(); }

/// Pages that are NaN until written, handed out in a scrambled order; the last page stays NaN.
template <class S>
struct PagedRun {
  const PackedBatch<S>& b;
  int64_t page_tokens, layers = 2, layer = 1, table_width, num_pages;
  int threads;
  std::vector<int32_t> table, lengths;
  std::vector<S> keys, values, out;

  PagedRun(const PackedBatch<S>& batch, int64_t tokens_per_page, int num_threads = 1)
      : b(batch), page_tokens(tokens_per_page), threads(num_threads) {
    int64_t longest = 0;
    for (int64_t s = 0; s < b.sequences(); ++s) longest = std::max(longest, length(s));
    table_width = pages_for(longest) + 1;
    num_pages = b.sequences() * table_width + 1;
    std::vector<int32_t> free(static_cast<size_t>(num_pages - 1));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), std::mt19937(7));
    for (int64_t s = 0; s < b.sequences(); ++s)
      for (int64_t p = 0; p < table_width; ++p) {
        table.push_back(p < pages_for(length(s)) ? free.back() : static_cast<int32_t>(num_pages - 1));
        free.pop_back();
      }
    keys.assign(static_cast<size_t>(layers * num_pages * page_tokens * b.shape.kv_width()),
                not_a_number<S>());
    values = keys;
    lengths.assign(static_cast<size_t>(b.sequences()), 0);
    out.assign(b.out.size(), not_a_number<S>());
  }
  int64_t length(int64_t s) const { return b.cu[static_cast<size_t>(s + 1)] - b.cu[static_cast<size_t>(s)]; }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
  bool done() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == b.tokens(); }

  PagedKv view() {
    const int64_t size = page_tokens * b.shape.kv_width();
    return {make_tensor(keys.data(), kDTypeOf<S>, {layers, num_pages, size}),
            make_tensor(values.data(), kDTypeOf<S>, {layers, num_pages, size}),
            view_of(table.data(), {b.sequences(), table_width}), view_of(lengths.data(), {b.sequences()}),
            page_tokens};
  }

  /// Appends and attends the next chunk[s] positions of each sequence (or what is left).
  void step(const std::vector<int64_t>& chunk) {
    std::vector<int32_t> cu{0};
    std::vector<int64_t> source;
    for (int64_t s = 0; s < b.sequences(); ++s) {
      int32_t& at = lengths[static_cast<size_t>(s)];
      const int64_t end = std::min(at + chunk[static_cast<size_t>(s)], length(s));
      for (; at < end; ++at) source.push_back(b.cu[static_cast<size_t>(s)] + at);
      cu.push_back(static_cast<int32_t>(source.size()));
    }
    const auto T = static_cast<int64_t>(source.size()), width = b.shape.qkv_width(),
               q_width = b.shape.q_width();
    std::vector<S> qkv, rows(static_cast<size_t>(T * q_width));
    for (int64_t t : source)
      qkv.insert(qkv.end(), b.qkv.begin() + t * width, b.qkv.begin() + (t + 1) * width);
    Backend backend(Device::cpu, threads);
    Ctx& c = backend.ctx();
    const CTensor qkv_view = view_of(qkv.data(), {T, width}),
                  cu_view = view_of(cu.data(), {b.sequences() + 1});
    append_kv(c, view(), layer, qkv_view, cu_view, b.shape);
    std::fill(qkv.begin(), qkv.end(), not_a_number<S>());
    for (int64_t t = 0; t < T; ++t)  // keys and values must come from the pages
      std::copy_n(b.qkv.begin() + source[static_cast<size_t>(t)] * width, q_width, qkv.begin() + t * width);
    attention_paged(c, make_tensor(rows.data(), kDTypeOf<S>, {T, q_width}), qkv_view, view(), layer, cu_view,
                    b.shape, b.scale);
    for (int64_t t = 0; t < T; ++t)
      std::copy_n(rows.begin() + t * q_width, q_width,
                  out.begin() + source[static_cast<size_t>(t)] * q_width);
  }
};

CPU_TEST(AttentionPaged, SequencesMayShareThePagesOfTheirPrefix) {
  constexpr int64_t kPrefix = 160;
  PackedBatch<bf16> b({4, 2, 64}, {300, 200, 161}, 13);
  const int64_t width = b.shape.qkv_width();
  for (size_t s = 1; s < 3; ++s) std::copy_n(b.qkv.begin(), kPrefix * width, b.qkv.begin() + b.cu[s] * width);
  b.forward();
  PagedRun<bf16> run(b, 32);
  run.step({kPrefix, 0, 0});
  const std::vector<bf16> prefix_keys = run.keys;
  for (int64_t s = 1; s < 3; ++s) {
    std::copy_n(run.table.begin(), kPrefix / 32, run.table.begin() + s * run.table_width);
    run.lengths[static_cast<size_t>(s)] = kPrefix;
    std::copy_n(b.out.begin(), kPrefix * b.shape.q_width(),
                run.out.begin() + b.cu[static_cast<size_t>(s)] * b.shape.q_width());
  }
  while (!run.done()) run.step({50, 1, 1});
  EXPECT_TRUE(same_bits(run.out, b.out));
  const int64_t page = 32 * b.shape.kv_width();
  for (int64_t p = 0; p < kPrefix / 32; ++p) {
    const int64_t at = (run.num_pages + run.table[static_cast<size_t>(p)]) * page;
    EXPECT_EQ(
        std::memcmp(run.keys.data() + at, prefix_keys.data() + at, static_cast<size_t>(page) * sizeof(bf16)),
        0);
  }
}

/// Rows [from, to) of a matrix.
template <class S>
std::vector<S> cut(const std::vector<S>& from, int64_t width, int64_t begin, int64_t end) {
  return {from.begin() + begin * width, from.begin() + end * width};
}

template <class S>
void expect_neighbours_and_threads_do_not_matter(AttentionShape shape) {
  PackedBatch<S> all(shape, {300, 1, 2100, 77}, 17);
  all.forward(1);
  all.backward(1);
  PackedBatch<S> threaded = all;
  threaded.out.assign(all.out.size(), not_a_number<S>());
  threaded.dqkv.assign(all.dqkv.size(), not_a_number<S>());
  threaded.forward(2);
  threaded.backward(2);
  EXPECT_TRUE(same_bits(threaded.out, all.out) && same_bits(threaded.lse, all.lse));
  EXPECT_TRUE(same_bits(threaded.dqkv, all.dqkv));
  for (size_t s = 0; s + 1 < all.cu.size(); ++s) {
    const int64_t begin = all.cu[s], end = all.cu[s + 1];
    PackedBatch<S> alone(shape, {static_cast<int>(end - begin)});
    alone.qkv = cut(all.qkv, shape.qkv_width(), begin, end);
    alone.dout = cut(all.dout, shape.q_width(), begin, end);
    alone.forward();
    alone.backward();
    EXPECT_TRUE(same_bits(alone.out, cut(all.out, shape.q_width(), begin, end))) << "sequence " << s;
    EXPECT_TRUE(same_bits(alone.dqkv, cut(all.dqkv, shape.qkv_width(), begin, end))) << "sequence " << s;
  }
}

CPU_TEST(Attention, NeighboursAndThreadsDoNotMatter) {
  expect_neighbours_and_threads_do_not_matter<float>({7, 1, 64});
  expect_neighbours_and_threads_do_not_matter<bf16>({4, 2, 24});
  expect_neighbours_and_threads_do_not_matter<double>({2, 2, 16});
  expect_neighbours_and_threads_do_not_matter<bf16>({2, 1, 20});
}

CPU_TEST(Attention, LaterPositionsAndOtherSequencesNeverTouchARow) {
  PackedBatch<float> b({4, 2, 24}, {200, 140}, 19);
  b.forward();
  PackedBatch<float> broken = b;
  const int64_t width = b.shape.qkv_width(), poisoned = 131;
  std::fill(broken.qkv.begin() + poisoned * width, broken.qkv.begin() + 200 * width,
            std::numeric_limits<float>::infinity());
  broken.forward();
  EXPECT_TRUE(
      same_bits(cut(broken.out, b.shape.q_width(), 0, poisoned), cut(b.out, b.shape.q_width(), 0, poisoned)));
  EXPECT_TRUE(
      same_bits(cut(broken.out, b.shape.q_width(), 200, 340), cut(b.out, b.shape.q_width(), 200, 340)));
  EXPECT_TRUE(std::isnan(broken.out[static_cast<size_t>(poisoned * b.shape.q_width())]));
}

CPU_TEST(AttentionBackward, Fp64IsTheDerivative) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 8}, AttentionShape{7, 1, 8},
                                      AttentionShape{2, 2, 24}, AttentionShape{2, 1, 12}}) {
    PackedBatch<double> b(shape, {5, 1, 18, 130}, 23);
    b.forward();
    b.backward();
    double worst = 0;
    const auto loss = [&](double& x, double moved) {
      const double old = std::exchange(x, moved);
      b.forward();
      x = old;
      return std::inner_product(b.out.begin(), b.out.end(), b.dout.begin(), 0.0);
    };
    const size_t step = b.tokens() * shape.qkv_width() > 10000 ? 17 : 7;
    for (size_t i = 0; i < b.qkv.size(); i += step) {
      constexpr double kStep = 1e-4;
      const double x = b.qkv[i],
                   numeric = (loss(b.qkv[i], x + kStep) - loss(b.qkv[i], x - kStep)) / (2 * kStep);
      worst = std::max(worst, std::abs(numeric - b.dqkv[i]) / (1 + std::abs(numeric)));
    }
    EXPECT_LT(worst, 1e-6);
    std::printf("largest difference from central differences: %.2e\n", worst);
  }
}

/// Largest difference from the plain fp64 formula, relative to the largest gradient.
template <class S>
double backward_error(AttentionShape shape, const std::vector<int>& lengths) {
  PackedBatch<S> b(shape, lengths, 29);
  b.forward();
  b.backward();
  const std::vector<double> expected = plain_backward(b);
  double worst = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(as_double(b.dqkv[i]) - expected[i]);
    worst = error <= worst ? worst : error;  // keeps NaN
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}

template <class S>
void expect_backward_near_plain(double bound) {
  double worst = 0;
  for (const AttentionShape& shape : kShapes) {
    const double error = backward_error<S>(shape, {1, 17, 128, 0, 129});
    EXPECT_LT(error, bound) << "dh " << shape.head_dim << ", " << shape.q_heads << " heads";
    worst = std::max(worst, error);
  }
  for (int length : {1023, 1024, 1025, 2100}) {
    const double error = backward_error<S>({2, 1, 16}, {length, 3});
    EXPECT_LT(error, bound) << "length " << length;
    worst = std::max(worst, error);
  }
  std::printf("largest error: %.2e of the largest gradient\n", worst);
}

CPU_TEST(AttentionBackward, Fp64IsThePlainFormula) { expect_backward_near_plain<double>(1e-13); }
/// 9,030 terms (70 heads of 129 queries) in one chain: sqrt(9030) * 2^-24.
CPU_TEST(AttentionBackward, Fp32IsNearThePlainFormula) { expect_backward_near_plain<float>(5.7e-6); }
/// One rounding to 8 bits: 2^-8, and the fp32 error.
CPU_TEST(AttentionBackward, Bf16IsNearThePlainFormula) { expect_backward_near_plain<bf16>(0x1p-8 + 5.7e-6); }

/// dq, dk and dv of a packed batch; in: qkv and dout.
Many packed_gradients(Ctx& c, DType dtype, const Many& in, const AttentionShape& shape,
                      const std::vector<int32_t>& cu) {
  const int64_t tokens = cu.back(), width = shape.qkv_width(), q_width = shape.q_width();
  const ArenaScope scope(c.scratch);
  const TestTensor qkv(c, in[0], dtype, {tokens, width}), dout(c, in[1], dtype, {tokens, q_width}),
      ends(c, cu, {static_cast<int64_t>(cu.size())}), out(c, dtype, {tokens, q_width}),
      lse(c, accumulate_dtype(dtype), {shape.q_heads, tokens}), dqkv(c, dtype, {tokens, width});
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  attention_varlen_forward(c, out, lse, qkv, ends, shape, scale);
  attention_varlen_backward(c, dqkv, dout, qkv, out, lse, ends, shape, scale);
  Many parts(3);
  const Values all = dqkv.values();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < width; ++i)
      parts[i < q_width                      ? 0
            : i < q_width + shape.kv_width() ? 1
                                             : 2]
          .push_back(all[static_cast<size_t>(t * width + i)]);
  return parts;
}

/// The fp64 of the CPU is compared with the plain formula above.
void expect_gradients_near_fp64(const AttentionShape& shape, const std::vector<int>& lengths) {
  std::vector<int32_t> cu{0};
  for (int n : lengths) cu.push_back(cu.back() + n);
  check_dtypes(
      fmt::format("{} of {} heads of {}, {} rows", shape.q_heads, shape.kv_heads, shape.head_dim, cu.back()),
      {normal_values(cu.back() * shape.qkv_width(), 31), normal_values(cu.back() * shape.q_width(), 32)},
      [&](Ctx& c, DType t, const Many& in) { return packed_gradients(c, t, in, shape, cu); }, 1e-5, 1.5e-2);
}

const std::vector<AttentionShape> kGradientShapes = {{2, 2, 64},  {7, 1, 64},   {32, 2, 64}, {8, 2, 128},
                                                     {8, 1, 128}, {16, 1, 128}, {4, 4, 80},  {7, 1, 96},
                                                     {4, 1, 256}, {16, 1, 8}};

TEST(AttentionBackward, EveryTypeIsNearFp64) {
  for (const AttentionShape& shape : kGradientShapes)
    expect_gradients_near_fp64(shape, {1, 17, 64, 0, 65, 300, 128, 129, 2, 0});
  for (const AttentionShape& shape : {AttentionShape{2, 1, 64}, {2, 1, 128}, {1, 1, 80}})
    expect_gradients_near_fp64(shape, {1, 1100, 3});
  expect_gradients_near_fp64({4, 1, 128}, {2});
}

/// Every kernel, and little enough for tools that watch each access.
TEST(AttentionBackward, EveryTypeIsNearFp64InShortSequences) {
  for (const AttentionShape& shape : kGradientShapes) expect_gradients_near_fp64(shape, {1, 0, 65, 130});
}

CPU_TEST(Attention, InconsistentBatchesAreRefused) {
  PackedBatch<float> b({2, 1, 8}, {3, 4});
  b.cu = {0, 5, 4, 7};
  EXPECT_THROW(b.forward(), Error);
  b.cu = {1, 7};
  EXPECT_THROW(b.forward(), Error);
  PackedBatch<float> odd({3, 2, 8}, {3});
  EXPECT_THROW(odd.forward(), Error);
  PackedBatch<float> narrow({2, 1, 10}, {3});
  EXPECT_THROW(narrow.forward(), Error);

  PackedBatch<float> good({2, 1, 8}, {40});
  PagedRun<float> run(good, 16);
  run.table[2] = static_cast<int32_t>(run.num_pages);
  EXPECT_THROW(run.step({40}), Error);
  run.table[2] = -1;
  run.lengths[0] = 0;
  EXPECT_THROW(run.step({40}), Error);
  run.table[2] = 0;
  run.table_width = 2;
  run.lengths[0] = 0;
  EXPECT_THROW(run.step({40}), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
