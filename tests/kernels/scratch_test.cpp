// Scratch memory of the CUDA kernels as a plan counts it, by the functions that the kernels call, in any
// build.

#include <gtest/gtest.h>

#include "kernels/planned/planned.h"

namespace temper {
namespace {

Tensor shaped(DType dtype, std::initializer_list<int64_t> shape) {
  return make_tensor(nullptr, dtype, shape);
}
Tensor bf16(std::initializer_list<int64_t> shape) { return shaped(DType::bf16, shape); }
Tensor fp32(std::initializer_list<int64_t> shape) { return shaped(DType::f32, shape); }

/// Most bytes that the op has in use, which are none behind it.
template <class Op>
int64_t bytes_of(Op&& op) {
  Arena scratch(Device::meta_cuda);
  Lane lane(Device::meta_cuda);
  Ctx ctx{.scratch = scratch, .lane = lane};
  op(ctx);
  EXPECT_EQ(scratch.mark(), 0);
  return scratch.peak_bytes();
}

int64_t swiglu(Tensor (*of)(std::initializer_list<int64_t>), int64_t rows, int64_t outputs) {
  return bytes_of([&](Ctx& c) {
    planned::linear_swiglu_forward(c, of({rows, outputs}), of({rows, 1024}), of({2 * outputs, 1024}), {});
  });
}

TEST(Scratch, OfLinearLayersIsWhatLiesBetweenTwoKernels) {
  EXPECT_EQ(swiglu(bf16, 65, 3072), 65 * 6144 * 2);
  EXPECT_EQ(swiglu(bf16, 64, 3072), 0);  // one kernel
  EXPECT_EQ(swiglu(bf16, 8, 3071), 98304);
  EXPECT_EQ(swiglu(fp32, 8, 3072), 8 * 6144 * 4);
  EXPECT_EQ(bytes_of([](Ctx& c) {
              planned::linear_backward_bias(c, fp32({1152}), bf16({1000, 1152}));
            }),
            4 * 1152 * 4);
}

TEST(Scratch, OfGradientsOfAdaptersIsTheirParts) {
  const AdapterBlocks two{2, {0, 64}, {0, 64}, {64, 64}};
  const auto of_b = [&](Tensor (*of)(std::initializer_list<int64_t>), int64_t rank) {
    return bytes_of([&](Ctx& c) {
      planned::adapter_backward_b(c, fp32({128, rank}), of({5000, 128}), of({5000, 2 * rank}), 1, two, {});
    });
  };
  const auto of_a = [](int64_t columns) {
    return bytes_of([&](Ctx& c) {
      planned::adapter_backward_a(c, fp32({columns, 64}), bf16({5000, columns}), bf16({5000, 64}), {});
    });
  };
  EXPECT_EQ(of_b(bf16, 32), 3 * 128 * 32 * 4);
  EXPECT_EQ(of_b(bf16, 4), 128 * 8 * 4);  // copies of less than 16 bytes
  EXPECT_EQ(of_b(fp32, 32), 128 * 64 * 4);
  EXPECT_EQ(of_a(96), 3 * 96 * 64 * 4);
  EXPECT_EQ(of_a(192), 0);  // one product
}

TEST(Scratch, OfNormsHasARowForEachBlock) {
  const auto norm = [](int64_t rows, int64_t width) {
    return bytes_of([&](Ctx& c) {
      planned::rmsnorm_backward(c, {}, {}, {}, {}, bf16({rows, width}), {}, {});
    });
  };
  EXPECT_EQ(norm(5000, 1024), 500 * 1024 * 4);
  EXPECT_EQ(norm(5000, 2560), 264 * 2560 * 4);
  EXPECT_EQ(norm(5000, 5120), 132 * 5120 * 4);
  EXPECT_EQ(norm(9, 1024), 3 * 1024 * 4);
}

TEST(Scratch, OfAttentionIsThatOfTheKernelThatTheHeadsGet) {
  const auto backward = [](int64_t heads, int64_t head_dim) {
    const AttentionShape shape{heads, 2, head_dim};
    const Tensor qkv = bf16({4096, shape.qkv_width()}), cu_seqlens = shaped(DType::i32, {8});
    return bytes_of(
        [&](Ctx& c) { planned::attention_varlen_backward(c, {}, {}, qkv, {}, {}, cu_seqlens, shape, 1.0); });
  };
  EXPECT_EQ(backward(16, 128), 41538560);
  EXPECT_EQ(backward(14, 64), 18452736);
  EXPECT_EQ(backward(16, 80), 4096 * 16 * 4);
  EXPECT_EQ(backward(16, 256), 2 * 16 * 39 * 128 * 4);  // no sums of dQ
  const auto paged = [](const AttentionShape& shape, int64_t pages) {
    const PagedKv kv{bf16({1, 1, 1}), bf16({1, 1, 1}), shaped(DType::i32, {30, pages}), {}, 128};
    return bytes_of([&](Ctx& c) {
      planned::attention_paged(c, {}, bf16({30, shape.qkv_width()}), kv, 0, shaped(DType::i32, {31}), shape,
                               1.0);
    });
  };
  EXPECT_EQ(paged({16, 8, 128}, 40), 30 * 16 * 5 * (128 + 2) * 4);
  EXPECT_EQ(paged({16, 4, 256}, 40), 30 * 16 * 5 * (256 + 2) * 4);
  EXPECT_EQ(paged({16, 8, 128}, 8), 0);   // one split
  EXPECT_EQ(paged({16, 1, 128}, 40), 0);  // no decode kernel for such groups
  EXPECT_EQ(paged({16, 8, 80}, 40), 0);
}

TEST(Scratch, OfTheHeadIsLogitsOfSomeRowsAndIds) {
  const Tensor hidden = bf16({3000, 1024}), w = bf16({50257, 1024});
  EXPECT_EQ(bytes_of([&](Ctx& c) { planned::logprob_forward(c, {}, {}, {}, hidden, w, {}, 1.0); }), 68008960);
  EXPECT_EQ(bytes_of([&](Ctx& c) { planned::logprob_stats(c, {}, {}, hidden, w, {}, 1.0, {}); }), 64 << 20);
  EXPECT_EQ(bytes_of([&](Ctx& c) {
              planned::logprob_stats(c, {}, {}, hidden, bf16({0, 1024}), {}, 1.0, {});
            }),
            0);
  EXPECT_EQ(bytes_of([&](Ctx& c) {
              planned::sample_chunks(c, {}, bf16({96, 1024}), w, {}, 50257, {});
            }),
            19301376);
  const auto backward = [](const Tensor& x, int64_t vocabulary) {
    const Tensor table = shaped(x.dtype, {vocabulary, x.dim(1)});
    return bytes_of(
        [&](Ctx& c) { planned::logprob_backward(c, {}, {}, {}, {}, x, table, {}, {}, {}, 1.0, {}); });
  };
  EXPECT_EQ(backward(bf16({5000, 1024}), 50257), 138481408 + 256);  // the count of the rows with a gradient
  EXPECT_EQ(backward(fp32({5000, 1024}), 50257), 102584064 + 256);
  EXPECT_EQ(backward(bf16({100, 64}), 301), 230144 + 256);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
