// Backward products of real shapes on the GPU: rows that do not know each other, sums that repeat, algorithms
// of one class of bits.

#include "kernels/cuda/linear_lt.h"
#include "kernels/cuda/linear_trial.h"
#include "src/ops/head.h"
#include "src/ops/linear.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

using cuda::Product;
using cuda::ProductKind;

/// Outputs and features of weights.
using Shapes = std::vector<std::pair<int64_t, int64_t>>;
const Shapes kShapes{{6144, 4096}, {4096, 12288}, {2048, 2048}, {1152, 896}, {2056, 1048}, {250, 130}};

Tensor random_tensor(Ctx& c, DType dtype, std::initializer_list<int64_t> shape, int64_t seed) {
  const Tensor t = c.scratch.make(shape, dtype);
  NormalBlock().fill(c.device, t, 0.5, 0, seed);
  return t;
}

TEST(GpuBackward, InputGradientsHaveTheSameBitsForAnyNumberOfRows) {
  constexpr int64_t kMost = 8192;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  for (const auto& [N, K] : kShapes)
    for (const DType out : {DType::bf16, DType::f32}) {
      ArenaScope scope(c.scratch);
      const Tensor dy = random_tensor(c, DType::bf16, {kMost, N}, 1),
                   w = random_tensor(c, DType::bf16, {N, K}, 2), whole = c.scratch.make({kMost, K}, out),
                   part = c.scratch.make({kMost, K}, out);
      linear_backward_input(c, whole, dy, w);
      const std::vector<char> want = bytes_of(c, whole);
      for (const int64_t T :
           {1, 2, 3, 7, 8, 15, 16, 17, 33, 63, 64, 65, 100, 127, 128, 129, 1000, 1001, 4096}) {
        const int64_t first = T * 37 % (kMost - T);
        linear_backward_input(c, rows(part, 0, T), rows(CTensor(dy), first, first + T), w);
        const std::vector<char> got = bytes_of(c, rows(CTensor(part), 0, T));
        ASSERT_EQ(std::memcmp(got.data(), want.data() + first * K * dtype_size(out), got.size()), 0)
            << T << " rows of " << N << " x " << K << " in " << dtype_name(out);
      }
    }
}

TEST(GpuBackward, WeightGradientsRepeatAndTheFirstReadsNothing) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  for (const auto& [N, K] : kShapes)
    for (const int64_t T : {1, 63, 64, 65, 1000, 1001, 4095, 8192}) {
      ArenaScope scope(c.scratch);
      const Tensor dy = random_tensor(c, DType::bf16, {T, N}, 1),
                   x = random_tensor(c, DType::bf16, {T, K}, 2), dw = c.scratch.make({N, K}, DType::f32);
      const auto run = [&](int held, GradWrite write) {
        device::fill(c.lane, dw.raw(), held, dw.bytes());
        linear_backward_weight(c, dw, dy, x, write);
        return bytes_of(c, dw);
      };
      const std::vector<char> want = run(0, GradWrite::add);
      EXPECT_TRUE(want == run(0, GradWrite::add)) << T << " tokens, " << N << " x " << K;
      EXPECT_TRUE(want == run(0xff, GradWrite::first)) << T << " tokens, " << N << " x " << K;
    }
}

/// Also says which numbers of tokens the library takes as they are.
TEST(GpuBackward, EveryAlgorithmOfTheClassHasTheBitsOfTheChain) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  cuda::Libraries& libraries = cuda::libraries_of(c);
  for (const auto& [N, K] : Shapes{{6144, 4096}, {4096, 12288}, {2048, 2048}, {1152, 896}})
    for (const int64_t T : {1000, 1001, 4096}) {
      ArenaScope scope(c.scratch);
      const Tensor w = random_tensor(c, DType::bf16, {N, K}, 3);
      const Product dx{nullptr,
                       nullptr,
                       w.raw(),
                       nullptr,
                       T,
                       K,
                       N,
                       K,
                       DType::bf16,
                       DType::bf16,
                       ProductKind::input_gradient},
          dw{nullptr,
             nullptr,
             nullptr,
             nullptr,
             N,
             K,
             T,
             K,
             DType::bf16,
             DType::f32,
             ProductKind::weight_gradient};
      Product forward = dx, dx_added = dx, dw_added = dw;
      forward = {nullptr, nullptr, w.raw(), nullptr, T, N, K, N, DType::bf16, DType::bf16};
      dx_added.out = DType::f32;
      dx_added.add = dw_added.add = true;
      for (const Product& p : {forward, dx, dx_added, dw, dw_added}) {
        cuda::Trial trial(c.lane, p);
        const std::vector<cuda::Candidate> list = cuda::LtCall(libraries, trial.product()).candidates();
        for (const cuda::Candidate& one : list)
          EXPECT_TRUE(trial.same_bits_as_chain([&](const Product& q) {
            cuda::LtCall(libraries, q).run(one.algorithm);
          })) << one.name
              << " of kind " << static_cast<int>(p.kind) << ", " << T << " tokens";
        std::printf("%ld x %ld, %ld tokens, kind %d%s: %zu algorithms\n", N, K, T, static_cast<int>(p.kind),
                    p.add ? " added" : "", list.size());
        EXPECT_TRUE(T % 8 != 0 || !list.empty());
      }
    }
}

/// A wrong bit in the first rows, in the middle or in the last row is seen.
TEST(GpuBackward, SelfTestsSeeEveryPartOfTheRows) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const Tensor w = random_tensor(c, DType::bf16, {256, 128}, 4);
  const Product p{nullptr,
                  nullptr,
                  w.raw(),
                  nullptr,
                  1024,
                  128,
                  256,
                  128,
                  DType::bf16,
                  DType::f32,
                  ProductKind::input_gradient};
  cuda::Trial trial(c.lane, p);
  const auto chain = [&](const Product& q) { cuda::multiply_chain(c.lane, q); };
  EXPECT_TRUE(trial.same_bits_as_chain(chain));
  for (const int64_t row : {0, 63, 512, 1023})
    EXPECT_FALSE(trial.same_bits_as_chain([&](const Product& q) {
      chain(q);
      device::fill(c.lane, static_cast<char*>(q.y) + row * q.pitch * 4, 0, 4);
    })) << row;
}

/// Gradients of rows alone, in a batch of which many have none, and of all: the same dhidden; dw repeats.
TEST(GpuBackward, HeadRowsDoNotKnowEachOther) {
  constexpr int64_t kRows = 4500, kWidth = 256, kVocabulary = 20011;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const Tensor hidden = random_tensor(c, DType::bf16, {kRows, kWidth}, 5),
               w = random_tensor(c, DType::bf16, {kVocabulary, kWidth}, 6),
               up = random_tensor(c, DType::f32, {2, kRows}, 7),
               stats = c.scratch.make({3, kRows}, DType::f32),
               dw = c.scratch.make({kVocabulary, kWidth}, DType::f32);
  const std::vector<int32_t> ids = random_ids(kRows, kVocabulary, 8);
  const CTensor targets = to_device(c, view_of(ids.data(), {kRows}));
  const auto line = [&](const Tensor& t, int64_t i, int64_t begin, int64_t end) {
    return make_tensor(t.as<float>() + i * kRows + begin, DType::f32, {end - begin});
  };
  logprob_forward(c, line(stats, 0, 0, kRows), line(stats, 1, 0, kRows), line(stats, 2, 0, kRows), hidden, w,
                  targets, 0.9);
  const auto run = [&](int64_t begin, int64_t end) {
    ArenaScope scope(c.scratch);
    const Tensor dhidden = c.scratch.make({end - begin, kWidth}, DType::bf16);
    device::fill(c.lane, dw.raw(), 0, dw.bytes());
    logprob_backward(c, dhidden, dw, line(up, 0, begin, end), line(up, 1, begin, end),
                     rows(CTensor(hidden), begin, end), w, rows(targets, begin, end),
                     line(stats, 2, begin, end), line(stats, 1, begin, end), 0.9);
    return bytes_of(c, dhidden);
  };
  const std::vector<char> want = run(0, kRows), sums = bytes_of(c, dw);
  EXPECT_TRUE(want == run(0, kRows));
  EXPECT_TRUE(sums == bytes_of(c, dw));
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{17, 18}, {3, 60}, {100, 171}, {5, 4200}}) {
    const std::vector<char> got = run(begin, end);
    EXPECT_EQ(std::memcmp(got.data(), want.data() + begin * kWidth * 2, got.size()), 0) << begin;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
