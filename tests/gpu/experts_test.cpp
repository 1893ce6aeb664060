// Experts on the GPU: a grouped product has the bits of the dense one of each expert, whatever the routing;
// sums over rows meet no row of another expert; choices and places are those of the CPU.

#include <limits>

#include "kernels/cuda/experts_linear.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"
#include "src/ops/rows.h"
#include "tests/gpu/routings.h"

namespace temper {
namespace {

using cuda::Product;
using cuda::ProductKind;

class GpuExperts : public ::testing::Test {
 protected:
  Backend gpu_{Device::cuda};
  Ctx& c = gpu_.ctx();
  NormalBlock block_;
  int64_t seed_ = 0;

  GpuExperts() {
    // One allocation: memcheck takes a bulk copy over the border of two for one out of bounds. RealShapes has
    // two gradients of 805 MB.
    c.scratch.share();
    const ArenaScope scope(c.scratch);
    c.scratch.make({int64_t{512} << 20}, DType::f32);
  }

  Tensor normal(DType dtype, std::initializer_list<int64_t> shape, double scale = 0.5) {
    const Tensor t = c.scratch.make(shape, dtype);
    c.lane.wait();
    block_.fill(c.device, t, scale, 0, ++seed_);
    return t;
  }
  /// Rows, and behind them some that are NaN.
  Tensor normal_rows(DType dtype, int64_t count, int64_t width) {
    const Tensor all = c.scratch.make({count + 200, width}, dtype);
    device::fill(c.lane, all.raw(), 0xff, all.bytes());
    c.lane.wait();
    const Tensor t = rows(all, 0, count);
    block_.fill(c.device, t, 0.5, 0, ++seed_);
    return t;
  }
  Tensor filled(DType dtype, std::initializer_list<int64_t> shape) {
    const Tensor t = c.scratch.make(shape, dtype);
    device::fill(c.lane, t.raw(), 0xff, t.bytes());
    return t;
  }

  /// Forward and input gradient of an [E N, K] layer against the dense ops of each expert.
  void expect_dense_rows(DType dtype, const Routing& r, int64_t N, int64_t K) {
    const Tensor x = normal_rows(dtype, r.R, K), dy = normal_rows(dtype, r.R, N),
                 w = normal(dtype, {r.E * N, K}), y = filled(dtype, {r.R, N}), dx = filled(dtype, {r.R, K}),
                 want_y = filled(dtype, {r.R, N}), want_dx = filled(dtype, {r.R, K});
    expert_linear_forward(c, y, x, w, r.offsets);
    expert_linear_backward_input(c, dx, dy, w, r.offsets);
    for (int64_t e = 0; e < r.E; ++e) {
      const int64_t begin = r.begin[static_cast<size_t>(e)], end = r.begin[static_cast<size_t>(e) + 1];
      if (begin == end) continue;
      const CTensor own = rows(w, e * N, (e + 1) * N);
      linear_forward(c, rows(want_y, begin, end), rows(x, begin, end), own, {});
      linear_backward_input(c, rows(want_dx, begin, end), rows(dy, begin, end), own);
    }
    EXPECT_TRUE(bytes_of(c, y) == bytes_of(c, want_y)) << "forward";
    EXPECT_TRUE(bytes_of(c, dx) == bytes_of(c, want_dx)) << "input gradient";
  }

  /// The weight gradient against the plain kernel on each expert's rows.
  void expect_plain_weights(DType dtype, const Routing& r, int64_t N, int64_t K, GradWrite write) {
    const bool add = write == GradWrite::add;
    const Tensor x = normal_rows(dtype, r.R, K), dy = normal_rows(dtype, r.R, N),
                 dw = filled(DType::f32, {r.E * N, K}), want = filled(DType::f32, {r.E * N, K});
    if (add)
      for (const Tensor& t : {dw, want}) block_.fill(c.device, t, 1, 0, 99);
    expert_linear_backward_weight(c, dw, dy, x, r.offsets, write);
    for (int64_t e = 0; e < r.E; ++e) {
      const int64_t begin = r.begin[static_cast<size_t>(e)],
                    count = r.begin[static_cast<size_t>(e) + 1] - begin;
      if (count == 0 && add) continue;
      const Product p{rows(want, e * N, (e + 1) * N).raw(),
                      rows(dy, begin, begin + count).raw(),
                      rows(x, begin, begin + count).raw(),
                      nullptr,
                      N,
                      K,
                      count,
                      K,
                      dtype,
                      DType::f32,
                      ProductKind::weight_gradient,
                      add};
      if (dtype == DType::f32)
        cuda::multiply_fp32(c.lane, p);
      else
        cuda::multiply_chain(c.lane, p);
    }
    EXPECT_TRUE(bytes_of(c, dw) == bytes_of(c, want)) << (add ? "added" : "first");
  }

  void expect_all(DType dtype, const Ids& ids, int64_t choices, int64_t E, int64_t N, int64_t K) {
    SCOPED_TRACE(fmt::format("{}: {} of {} experts, {} rows, {} x {}", dtype_name(dtype), choices, E,
                             ids.size(), N, K));
    ArenaScope scope(c.scratch);
    const Routing r(c, ids, choices, E);
    expect_dense_rows(dtype, r, N, K);
    expect_plain_weights(dtype, r, N, K, GradWrite::first);
    expect_plain_weights(dtype, r, N, K, GradWrite::add);
  }
};

/// Widths that wgmma takes and such that tensor copies do not take; few and many rows an expert.
TEST_F(GpuExperts, ProductsAreTheDenseOnesOfEachExpert) {
  const std::vector<std::pair<int64_t, int64_t>> shapes{
      {128, 64}, {192, 320}, {200, 128}, {72, 96}, {50, 33}};
  uint64_t seed = 0;
  for (const int64_t E : {1, 4, 7, 64})
    for (const int64_t K : {int64_t{1}, (E + 1) / 2, E})
      for (const int64_t T : {1, 5, 64, 333}) {
        const auto [N, D] = shapes[seed % shapes.size()];
        const Ids ids = drawn_choices(T, K, seed % 2 ? even_weights(E) : zipf_weights(E), seed);
        ++seed;
        if (T * K > 12'000) continue;
        expect_all(DType::bf16, ids, K, E, N, D);
        if (seed % 3 == 0) expect_all(DType::f32, ids, K, E, N, D);
      }
}

TEST_F(GpuExperts, ProductsTakeAnyNumberOfRows) {
  const std::vector<int64_t> counts{1, 0, 63, 64, 65, 127, 128, 129, 0, 0, 1000, 2049, 15, 16, 17, 8192, 0};
  const auto E = static_cast<int64_t>(counts.size());
  expect_all(DType::bf16, counted_choices(counts, 1), 1, E, 256, 128);
  expect_all(DType::bf16, counted_choices(counts, 2), 1, E, 320, 576);
  expect_all(DType::f32, counted_choices({3, 0, 70, 64}, 3), 1, 4, 100, 60);
  for (const int64_t taken : {0, 3, 6}) {  // one takes all
    std::vector<int64_t> one(7, 0);
    one[static_cast<size_t>(taken)] = 1500;
    expect_all(DType::bf16, counted_choices(one, 4), 1, 7, 384, 192);
  }
}

TEST_F(GpuExperts, RealShapes) {
  const Ids some = drawn_choices(600, 8, zipf_weights(128), 7),
            few = drawn_choices(40, 8, even_weights(128), 8);
  for (const auto& [N, K] : std::vector<std::pair<int64_t, int64_t>>{{1536, 2048}, {2048, 768}})
    for (const Ids& ids : {some, few}) {
      ArenaScope scope(c.scratch);
      const Routing r(c, ids, 8, 128);
      expect_dense_rows(DType::bf16, r, N, K);
    }
  ArenaScope scope(c.scratch);
  expect_plain_weights(DType::bf16, Routing(c, some, 8, 128), 768, 2048, GradWrite::first);
}

/// 200 routings with both forms of the forward, each against the plain kernel.
TEST_F(GpuExperts, BothFormsOfTheForwardHaveTheBitsOfThePlainKernel) {
  constexpr int64_t N = 264, K = 192, E = 20;
  const Tensor w = normal(DType::bf16, {E * N, K});
  for (uint64_t seed = 0; seed < 200; ++seed) {
    ArenaScope scope(c.scratch);
    const auto T = static_cast<int64_t>(1 + 400 * uniform_value(6, static_cast<int64_t>(seed)));
    const Routing r(c, drawn_choices(T, 4, seed % 2 ? zipf_weights(E) : even_weights(E), seed), 4, E);
    const Tensor x = normal_rows(DType::bf16, r.R, K), want = filled(DType::bf16, {r.R, N}),
                 got = filled(DType::bf16, {r.R, N});
    cuda::ExpertProduct p{{want.raw(), x.raw(), w.raw(), nullptr, r.R, N, K, N, DType::bf16, DType::bf16},
                          r.offsets.as<int32_t>(),
                          E};
    ASSERT_TRUE(cuda::is_wgmma_expert_product(p));
    cuda::multiply_experts_plain(c.lane, p);
    p.all.y = got.raw();
    for (const bool few : {false, true}) {
      device::fill(c.lane, got.raw(), 0xff, got.bytes());
      cuda::multiply_experts_wgmma(cuda::libraries_of(c), p, few);
      ASSERT_TRUE(bytes_of(c, got) == bytes_of(c, want)) << seed << (few ? ", few rows" : ", many rows");
    }
  }
}

/// NaN in the rows of one expert reaches no other.
TEST_F(GpuExperts, RowsOfOthersDoNotMatter) {
  const int64_t E = 5;
  for (const auto& [N, K] : std::vector<std::pair<int64_t, int64_t>>{{128, 64}, {60, 50}}) {
    ArenaScope scope(c.scratch);
    const Routing r(c, counted_choices({70, 33, 130, 1, 200}, 5), 1, E);
    const Tensor x = normal_rows(DType::bf16, r.R, K), dy = normal_rows(DType::bf16, r.R, N),
                 w = normal(DType::bf16, {E * N, K});
    const auto run = [&] {
      ArenaScope inner(c.scratch);
      const Tensor y = filled(DType::bf16, {r.R, N}), dx = filled(DType::bf16, {r.R, K}),
                   dw = filled(DType::f32, {E * N, K});
      expert_linear_forward(c, y, x, w, r.offsets);
      expert_linear_backward_input(c, dx, dy, w, r.offsets);
      expert_linear_backward_weight(c, dw, dy, x, r.offsets, GradWrite::first);
      return std::vector{bytes_of(c, y), bytes_of(c, dx), bytes_of(c, dw)};
    };
    const std::vector<std::vector<char>> want = run();
    for (const int64_t e : {1, 3}) {
      const int64_t begin = r.begin[static_cast<size_t>(e)], end = r.begin[static_cast<size_t>(e) + 1];
      for (const Tensor& t : {x, dy}) {
        const Tensor own = rows(t, begin, end);
        device::fill(c.lane, own.raw(), 0xff, own.bytes());
      }
      const std::vector<std::vector<char>> got = run();
      const int64_t sizes[]{N * 2, K * 2, N * K * 4};  // bytes of a row, of a block
      for (size_t i = 0; i < 3; ++i) {
        const int64_t first = (i == 2 ? e : begin) * sizes[i], last = (i == 2 ? e + 1 : end) * sizes[i];
        const auto part = [](const std::vector<char>& all, int64_t from, int64_t to) {
          return std::vector<char>(all.begin() + from, all.begin() + to);
        };
        const auto size = static_cast<int64_t>(got[i].size());
        EXPECT_TRUE(e == 3 || part(got[i], 0, first) == part(want[i], 0, first)) << e << ", output " << i;
        EXPECT_TRUE(part(got[i], last, size) == part(want[i], last, size)) << e << ", output " << i;
        EXPECT_FALSE(part(got[i], first, last) == part(want[i], first, last)) << e << ", output " << i;
      }
    }
  }
}

/// ids or places as the CPU backend has them.
TEST_F(GpuExperts, PlacesAreThoseOfTheCpu) {
  Backend host(Device::cpu);
  Ctx& h = host.ctx();
  for (const auto& [E, K] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {8, 2}, {128, 8}, {60, 60}, {1024, 32}})
    for (const int64_t T : {1, 7, 256, 257, 5000}) {
      if (T * K > 200'000) continue;
      ArenaScope scope(c.scratch), other(h.scratch);
      const Ids ids = drawn_choices(T, K, zipf_weights(E), static_cast<uint64_t>(E + T));
      const Routing got(c, ids, K, E);
      const Routing want(h, ids, K, E);
      EXPECT_EQ(got.begin, want.begin) << E << " " << T;
      EXPECT_EQ(to_host<int32_t>(c, got.tokens), to_host<int32_t>(h, want.tokens)) << E << " " << T;
      EXPECT_EQ(to_host<int32_t>(c, got.places), to_host<int32_t>(h, want.places)) << E << " " << T;
    }
}

TEST_F(GpuExperts, ChoicesAreThoseOfTheCpu) {
  constexpr int64_t T = 1000;
  Backend host(Device::cpu);
  Ctx& h = host.ctx();
  const float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [E, K] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {8, 2}, {8, 8}, {60, 4}, {128, 8}, {129, 7}, {1000, 32}, {1024, 1}}) {
    ArenaScope scope(c.scratch), other(h.scratch);
    const int64_t columns = E + 1;
    std::vector<float> u;
    for (double x : normal_values(T * columns, static_cast<uint64_t>(E)))
      u.push_back(static_cast<float>(std::round(x * 8) / 8));  // many are equal, zeros of both signs too
    for (int64_t t = T / 2; t < T; ++t) {
      float* const row = u.data() + t * columns;
      row[t % E] = t % 3 == 0 ? kNan : t % 3 == 1 ? -kInf : kInf;
      if (t % 10 == 0) std::fill_n(row, E, t % 20 == 0 ? kNan : -kInf);
    }
    const auto run = [&](Ctx& x, bool normalize) {
      ArenaScope inner(x.scratch);
      const CTensor logits = to_device(x, view_of(u.data(), {T, columns}));
      const Tensor ids = x.scratch.make({T, K}, DType::i32), weights = x.scratch.make({T, K}, DType::f32);
      choose_experts(x, ids, weights, logits, E, normalize);
      return std::pair{to_host<int32_t>(x, ids), to_host<float>(x, weights)};
    };
    for (const bool normalize : {false, true}) {
      const auto [got, weights] = run(c, normalize);
      const auto [want, expected] = run(h, normalize);
      EXPECT_EQ(got, want) << E << " experts";
      for (size_t i = 0; i < static_cast<size_t>(T / 2 * K); ++i)
        ASSERT_NEAR(weights[i], expected[i], 2e-6f * expected[i] + 1e-30f) << E << " experts, choice " << i;
    }
  }
}

/// A whole layer, again and again.
TEST_F(GpuExperts, HundredForwardsHaveOneDigest) {
  constexpr int64_t T = 777, E = 128, K = 8, H = 512, F = 256;
  const Tensor x = normal(DType::bf16, {T, H}), logits = normal(DType::f32, {T, E + 1}, 1),
               up = normal(DType::bf16, {E * 2 * F, H}), down = normal(DType::bf16, {E * H, F}),
               shared = normal(DType::bf16, {T, H});
  const auto run = [&] {
    ArenaScope scope(c.scratch);
    const Tensor ids = c.scratch.make({T, K}, DType::i32), weights = c.scratch.make({T, K}, DType::f32),
                 offsets = c.scratch.make({E + 1}, DType::i32), tokens = c.scratch.make({T * K}, DType::i32),
                 places = c.scratch.make({T, K}, DType::i32), in = c.scratch.make({T * K, H}, DType::bf16),
                 gate_up = c.scratch.make({T * K, 2 * F}, DType::bf16),
                 a = c.scratch.make({T * K, F}, DType::bf16), out = c.scratch.make({T * K, H}, DType::bf16),
                 y = filled(DType::bf16, {T, H});
    choose_experts(c, ids, weights, logits, E, true);
    sort_by_expert(c, offsets, tokens, places, ids);
    gather_rows(c, in, x, tokens);
    expert_linear_forward(c, gate_up, in, up, offsets);
    swiglu_forward(c, a, gate_up);
    expert_linear_forward(c, out, a, down, offsets);
    combine_experts(c, y, out, places, weights, shared, logits);
    return bytes_of(c, y);
  };
  const std::vector<char> want = run();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(run() == want) << i;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
