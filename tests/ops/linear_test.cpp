#include "src/ops/linear.h"

#include "kernels/cpu/canonical.h"
#include "tests/support/check_op.h"
#include "tests/support/normal_block.h"

namespace temper {
namespace {

struct Sizes {
  int64_t T, N, K;
};

Many forward(Ctx& c, DType dtype, const Many& in, const Sizes& s) {
  TestTensor x(c, in[0], dtype, {s.T, s.K}), w(c, in[1], dtype, {s.N, s.K}), y(c, dtype, {s.T, s.N});
  if (in.size() == 2) {
    linear_forward(c, y, x, w, {});
  } else {
    TestTensor bias(c, in[2], dtype, {s.N});
    linear_forward(c, y, x, w, bias);
  }
  return {y.values()};
}

/// Gradients of x, w and bias; those of w and bias on top of what the buffers held.
Many backward(Ctx& c, DType dtype, const Many& in, const Values& upstream, const Sizes& s, double held = 0.0,
              GradWrite write = GradWrite::add) {
  const DType sums = accumulate_dtype(dtype);
  TestTensor x(c, in[0], dtype, {s.T, s.K}), w(c, in[1], dtype, {s.N, s.K}),
      dy(c, upstream, dtype, {s.T, s.N});
  TestTensor dx(c, dtype, {s.T, s.K});
  TestTensor dw(c, Values(static_cast<size_t>(s.N * s.K), held), sums, {s.N, s.K});
  TestTensor db(c, Values(static_cast<size_t>(s.N), held), sums, {s.N});
  linear_backward_input(c, dx, dy, w);
  linear_backward_weight(c, dw, dy, x, write);
  linear_backward_bias(c, db, dy);
  return {dx.values(), dw.values(), db.values()};
}

Many inputs_of(const Sizes& s, uint64_t seed) {
  return {normal_values(s.T * s.K, seed), normal_values(s.N * s.K, seed + 1), normal_values(s.N, seed + 2)};
}

/// NUMERICS.md in scalars: 16 lanes, one chain each, zeros up to a whole group, the tree, bias, one rounding.
template <class S>
double defined_output(const double* x, const double* w, double bias, int64_t K) {
  using A = Accumulate<S>;
  A lanes[cpu::kLanes] = {};
  for (int64_t k = 0; k < (K + cpu::kLanes - 1) / cpu::kLanes * cpu::kLanes; ++k)
    lanes[k % cpu::kLanes] = std::fma(k < K ? A(x[k]) : A(0), k < K ? A(w[k]) : A(0), lanes[k % cpu::kLanes]);
  return round_to(static_cast<double>(cpu::tree_sum(lanes) + A(bias)), kDTypeOf<S>);
}

template <class S>
void expect_definition(const Sizes& s) {
  Many in = inputs_of(s, 10);
  for (Values& values : in) values = round_to(values, kDTypeOf<S>);
  Values want, without_bias;
  for (int64_t t = 0; t < s.T; ++t)
    for (int64_t n = 0; n < s.N; ++n) {
      want.push_back(defined_output<S>(&in[0][t * s.K], &in[1][n * s.K], in[2][n], s.K));
      without_bias.push_back(defined_output<S>(&in[0][t * s.K], &in[1][n * s.K], 0.0, s.K));
    }
  for (int threads : {1, 3}) {
    TestCtx ctx(threads);
    const std::string label =
        fmt::format("{} T {} N {} K {}, {} threads", dtype_name(kDTypeOf<S>), s.T, s.N, s.K, threads);
    expect_same_bits(label, forward(ctx, kDTypeOf<S>, in, s)[0], want);
    expect_same_bits(label + ", no bias", forward(ctx, kDTypeOf<S>, {in[0], in[1]}, s)[0], without_bias);
  }
}

CPU_TEST(Linear, ForwardBitsFollowTheDefinition) {
  for (int64_t T = 1; T <= 70; ++T) {
    const Sizes s{T, 1 + (T * 7) % 101, 1 + (T * 37) % 150};
    expect_definition<float>(s);
    expect_definition<bf16>(s);
    expect_definition<double>(s);
  }
  for (const Sizes& s :
       {Sizes{3, 97, 4099}, Sizes{30, 97, 4099}, Sizes{200, 50, 1030}, Sizes{25, 48, 2048},
        Sizes{400, 50, 1040}, Sizes{330, 49, 2048}, Sizes{130, 50, 5200}, Sizes{1100, 3, 5000}}) {
    expect_definition<float>(s);  // several blocks of features, rows and columns, panels, passes
    expect_definition<bf16>(s);
    expect_definition<double>(s);
  }
}

CPU_TEST(Linear, AgreesWithAPlainSum) {
  const Sizes s{37, 53, 777};
  const Many in = inputs_of(s, 20);
  Values want;
  for (int64_t t = 0; t < s.T; ++t)
    for (int64_t n = 0; n < s.N; ++n) {
      long double sum = in[2][n];
      for (int64_t k = 0; k < s.K; ++k)
        sum += static_cast<long double>(in[0][t * s.K + k]) * in[1][n * s.K + k];
      want.push_back(static_cast<double>(sum));
    }
  TestCtx ctx;
  expect_near("fp64", forward(ctx, DType::f64, in, s)[0], want, 1e-15);
  expect_near("fp32", forward(ctx, DType::f32, in, s)[0], want, 1e-6);
}

CPU_TEST(Linear, UnroundedOutputOfBf16) {
  const Sizes s{9, 21, 100};
  Many in = inputs_of(s, 30);
  for (Values& values : in) values = round_to(values, DType::bf16);
  TestCtx ctx;
  TestTensor x(ctx, in[0], DType::bf16, {s.T, s.K}), w(ctx, in[1], DType::bf16, {s.N, s.K}),
      y(ctx, DType::f32, {s.T, s.N});
  linear_forward(ctx, y, x, w, {});
  expect_same_bits("logits", y.values(), forward(ctx, DType::f32, {in[0], in[1]}, s)[0]);
}

TEST(Linear, RowsDoNotDependOnTheBatch) {
  const int64_t rows = 150, N = 61, K = 1100;
  const Many in = inputs_of({rows, N, K}, 40);
  check_rows("forward", rows, [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    return forward(c, t, {slice_rows(in[0], K, begin, end), in[1], in[2]}, {end - begin, N, K});
  });
}

CPU_TEST(Linear, RowBitsForUpTo4096Rows) {
  const int64_t most = 4096, N = 5, K = 33;
  const Many in = inputs_of({most, N, K}, 50);
  for (DType dtype : kStorageTypes) {
    TestCtx ctx;
    Values alone;
    for (int64_t t = 0; t < most; ++t) {
      const Values row = forward(ctx, dtype, {slice_rows(in[0], K, t, t + 1), in[1], in[2]}, {1, N, K})[0];
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (int64_t T : {2, 8, 9, 24, 25, 96, 97, 1024, 1025, 4096})
      expect_same_bits(fmt::format("{} rows {}", dtype_name(dtype), T),
                       forward(ctx, dtype, {slice_rows(in[0], K, 0, T), in[1], in[2]}, {T, N, K})[0],
                       slice_rows(alone, N, 0, T));
  }
}

/// Where w is stored so that a tile can read it, it is read in place, else from a copy.
CPU_TEST(Linear, BitsDoNotDependOnWhereTheWeightsAre) {
  const int64_t T = 100, N = 50, K = 2064;
  const Many in = inputs_of({T, N, K}, 55);
  TestCtx ctx;
  Arena arena;
  TestTensor x(ctx, in[0], DType::f32, {T, K});
  const auto with_weights_at = [&](int64_t offset) {
    Tensor memory = arena.make({N * K + offset}, DType::f32);
    float* w = memory.as<float>() + offset;
    for (int64_t i = 0; i < N * K; ++i) w[i] = static_cast<float>(in[1][i]);
    TestTensor y(ctx, DType::f32, {T, N});
    linear_forward(ctx, y, x, view_of(w, {N, K}), {});
    return y.values();
  };
  expect_same_bits("weights off a line", with_weights_at(3), with_weights_at(0));
}

/// One element of a backward product: chains of 256 in ascending order, each from zero.
float defined_sum(const double* a, int64_t a_stride, const double* b, int64_t b_stride, int64_t depth,
                  float sum) {
  for (int64_t d0 = 0; d0 < depth; d0 += 256) {
    float chain = 0;
    for (int64_t d = d0; d < std::min(d0 + 256, depth); ++d)
      chain = std::fma(static_cast<float>(a[d * a_stride]), static_cast<float>(b[d * b_stride]), chain);
    sum += chain;
  }
  return sum;
}

CPU_TEST(Linear, BackwardBitsFollowTheDefinition) {
  // In slabs of the depth; many rows; few rows of dx, and of dw, with odd ends of columns and depth; several
  // blocks of columns for few rows, and for many rows of few steps.
  for (const Sizes& s : {Sizes{530, 8200, 3}, Sizes{30, 600, 70}, Sizes{17, 301, 605}, Sizes{301, 23, 605},
                         Sizes{13, 40, 2100}, Sizes{3, 60, 8300}}) {
    const int64_t t_step = s.T / 15 + 1, n_step = s.N / 7 + 1;
    Many in = inputs_of(s, 75);
    in.push_back(normal_values(s.T * s.N, 78));
    for (Values& values : in) values = round_to(values, DType::f32);
    const double *x = in[0].data(), *w = in[1].data(), *dy = in[3].data();
    Values dx, dw;
    for (int64_t k = 0; k < s.K; ++k) {
      for (int64_t t = 0; t < s.T; t += t_step)
        dx.push_back(defined_sum(dy + t * s.N, 1, w + k, s.K, s.N, 0.0f));
      for (int64_t n = 0; n < s.N; n += n_step)
        dw.push_back(defined_sum(dy + n, s.N, x + k, s.K, s.T, 0.25f));
    }
    TestCtx ctx;
    const Many got = backward(ctx, DType::f32, in, in[3], s, 0.25);
    Values got_dx, got_dw;
    for (int64_t k = 0; k < s.K; ++k) {
      for (int64_t t = 0; t < s.T; t += t_step) got_dx.push_back(got[0][t * s.K + k]);
      for (int64_t n = 0; n < s.N; n += n_step) got_dw.push_back(got[1][n * s.K + k]);
    }
    expect_same_bits("dx", got_dx, dx);
    expect_same_bits("dw", got_dw, dw);
  }
}

CPU_TEST(Linear, Gradient) {
  for (const Sizes& s : {Sizes{3, 5, 7}, Sizes{14, 2, 35}})
    check_gradient(
        "linear", inputs_of(s, 60), [&](Ctx& c, DType t, const Many& in) { return forward(c, t, in, s); },
        [&](Ctx& c, DType t, const Many& in, const Many& douts) { return backward(c, t, in, douts[0], s); });
}

CPU_TEST(Linear, BackwardAgreesWithPlainSums) {
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{13, 300, 33}, Sizes{301, 30, 65}, Sizes{50, 541, 290}}) {
    const Many in = inputs_of(s, 70);
    const Values dy = normal_values(s.T * s.N, 79);
    Values dx(static_cast<size_t>(s.T * s.K)), dw(static_cast<size_t>(s.N * s.K), 0.25),
        db(static_cast<size_t>(s.N), 0.25);
    for (int64_t t = 0; t < s.T; ++t)
      for (int64_t n = 0; n < s.N; ++n) {
        db[n] += dy[t * s.N + n];
        for (int64_t k = 0; k < s.K; ++k) {
          dx[t * s.K + k] += dy[t * s.N + n] * in[1][n * s.K + k];
          dw[n * s.K + k] += dy[t * s.N + n] * in[0][t * s.K + k];
        }
      }
    TestCtx ctx;
    const Many got = backward(ctx, DType::f64, in, dy, s, 0.25);
    expect_near("dx", got[0], dx, 1e-14);
    expect_near("dw", got[1], dw, 1e-14);
    expect_near("db", got[2], db, 1e-14);
  }
}

TEST(Linear, Types) {
  for (const Sizes& s : {Sizes{1, 8, 16}, Sizes{3, 20, 33}, Sizes{64, 128, 64}, Sizes{65, 96, 192},
                         Sizes{130, 250, 130}, Sizes{200, 256, 320}, Sizes{260, 150, 530}}) {
    const auto run = [&](Ctx& c, DType t, const Many& in) { return forward(c, t, in, s); };
    Many in = inputs_of(s, 80);
    check_dtypes(fmt::format("{} rows of {} x {} and bias", s.T, s.N, s.K), in, run);
    in.pop_back();
    check_dtypes(fmt::format("{} rows of {} x {}", s.T, s.N, s.K), in, run);
  }
}

/// Products of real shapes on a GPU, each kernel that serves some number of rows of them.
TEST(Linear, RowsHaveTheSameBitsForAnyNumberOfRows) {
  using Products = std::vector<std::pair<int64_t, int64_t>>;
  const bool gpu = kTestDevice == Device::cuda;
  const int64_t most = gpu ? 2048 : 300;
  const Products products =
      gpu ? Products{{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}, {4096, 1024},
                     {1024, 2048}, {6144, 1024}, {1024, 3072},  {1152, 896},   {896, 896},
                     {9728, 896},  {896, 4864},  {2560, 9728}}
          : Products{{61, 1100}, {96, 256}, {5, 33}};
  const NormalBlock block;
  TestCtx ctx(2);
  Ctx& c = ctx;
  for (const auto& [N, K] : products)
    for (const bool with_bias : {false, true}) {
      ArenaScope scope(c.scratch);
      const Tensor x = c.scratch.make({most, K}, DType::bf16), w = c.scratch.make({N, K}, DType::bf16),
                   b = c.scratch.make({N}, DType::bf16), whole = c.scratch.make({most, N}, DType::bf16),
                   part = c.scratch.make({most, N}, DType::bf16);
      block.fill(c.device, x, 1, 0, 1);
      block.fill(c.device, w, 1, 0, 2);
      block.fill(c.device, b, 1, 0, 3);
      const CTensor bias = with_bias ? CTensor(b) : CTensor{};
      linear_forward(c, whole, x, w, bias);
      const std::vector<char> want = bytes_of(c, whole);
      for (int64_t M : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 127, 128, 256, 512, 1000, 1024}) {
        if (M >= most) break;
        const int64_t first = (M * 37) % (most - M);
        linear_forward(c, rows(part, 0, M), rows(CTensor(x), first, first + M), w, bias);
        const std::vector<char> got = bytes_of(c, rows(CTensor(part), 0, M));
        ASSERT_EQ(std::memcmp(got.data(), want.data() + first * N * 2, got.size()), 0)
            << M << " rows of " << N << " x " << K << (with_bias ? " with bias" : "");
      }
    }
}

Many with_upstream(const Sizes& s) {
  Many in = inputs_of(s, 80);
  in.push_back(normal_values(s.T * s.N, 89));
  return in;
}

/// One token, odd numbers of tokens, widths that are no multiples of 8 or of 64.
TEST(Linear, BackwardTypes) {
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{1, 8, 16}, Sizes{7, 24, 40}, Sizes{63, 96, 72},
                         Sizes{65, 96, 192}, Sizes{128, 256, 320}, Sizes{201, 256, 320}, Sizes{260, 150, 530},
                         Sizes{301, 264, 136}, Sizes{130, 250, 130}})
    for (const GradWrite write : {GradWrite::add, GradWrite::first})
      check_dtypes(
          fmt::format("backward of {} rows of {} x {}", s.T, s.N, s.K), with_upstream(s),
          [&](Ctx& c, DType t, const Many& all) { return backward(c, t, all, all[3], s, 1.0, write); });
}

CPU_TEST(Linear, Threads) {
  const Sizes s{260, 150, 530};
  const auto whole = [&](Ctx& c, DType t, const Many& all) {
    return forward(c, t, {all[0], all[1], all[2]}, s);
  };
  const auto gradient = [&](Ctx& c, DType t, const Many& all) { return backward(c, t, all, all[3], s, 1.0); };
  check_threads("forward", with_upstream(s), whole);
  check_threads("backward", with_upstream(s), gradient);
}

/// The first write of a gradient has the bits of an addition to zeros, whatever the memory held.
TEST(Linear, FirstWriteOfAGradient) {
  for (const Sizes& s : {Sizes{300, 40, 33}, Sizes{13, 400, 70}, Sizes{600, 3, 2100}, Sizes{0, 3, 20},
                         Sizes{301, 128, 136}, Sizes{304, 128, 136}}) {
    const Many in = inputs_of(s, 95);
    const Values dy = normal_values(s.T * s.N, 98);
    for (DType dtype : kStorageTypes)
      for (int threads : {1, 2}) {
        TestCtx ctx(threads);
        const Values want = backward(ctx, dtype, in, dy, s)[1];
        expect_same_bits("dw", backward(ctx, dtype, in, dy, s, std::nan(""), GradWrite::first)[1], want);
      }
  }
}

/// In the accumulate dtype dx is what a rounded one is rounded from.
CPU_TEST(Linear, UnroundedInputGradient) {
  for (const Sizes& s : {Sizes{9, 300, 40}, Sizes{300, 21, 33}}) {
    Many in = inputs_of(s, 85);
    Values dy = round_to(normal_values(s.T * s.N, 88), DType::bf16);
    for (Values& values : in) values = round_to(values, DType::bf16);
    TestCtx ctx;
    TestTensor upstream(ctx, dy, DType::bf16, {s.T, s.N}), w(ctx, in[1], DType::bf16, {s.N, s.K}),
        dx(ctx, DType::f32, {s.T, s.K});
    linear_backward_input(ctx, dx, upstream, w);
    expect_same_bits("sums", dx.values(), backward(ctx, DType::f32, in, dy, s)[0]);
    expect_same_bits("rounded", backward(ctx, DType::bf16, in, dy, s)[0], round_to(dx.values(), DType::bf16));
    TestTensor wide(ctx, DType::f64, {s.T, s.K});
    EXPECT_THROW(linear_backward_input(ctx, wide, upstream, w), Error);
  }
}

/// The sums are the same ones in both types of dx.
TEST(Linear, InputGradientIsRoundedOnce) {
  for (const Sizes& s : {Sizes{9, 300, 40}, Sizes{300, 21, 33}, Sizes{63, 264, 136}, Sizes{64, 264, 136},
                         Sizes{301, 256, 128}}) {
    const Many in = inputs_of(s, 85);
    const Values dy = normal_values(s.T * s.N, 88);
    TestCtx ctx;
    TestTensor upstream(ctx, dy, DType::bf16, {s.T, s.N}), w(ctx, in[1], DType::bf16, {s.N, s.K}),
        dx(ctx, DType::f32, {s.T, s.K});
    linear_backward_input(ctx, dx, upstream, w);
    expect_same_bits("rounded", backward(ctx, DType::bf16, in, dy, s)[0], round_to(dx.values(), DType::bf16));
  }
}

TEST(Linear, NoRows) {
  const Sizes s{0, 3, 20};
  const Many in = inputs_of(s, 90);
  TestCtx ctx(2);
  EXPECT_TRUE(forward(ctx, DType::f32, in, s)[0].empty());
  const Many got = backward(ctx, DType::bf16, in, {}, s, 2.0);
  EXPECT_TRUE(got[0].empty());
  expect_same_bits("dw", got[1], Values(60, 2.0));
  expect_same_bits("db", got[2], Values(3, 2.0));
}

TEST(Linear, WrongShapes) {
  TestCtx ctx;
  TestTensor x(ctx, DType::f32, {2, 3}), w(ctx, DType::f32, {4, 5}), y(ctx, DType::f32, {2, 4});
  EXPECT_THROW(linear_forward(ctx, y, x, w, {}), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
