#pragma once
// Products of the CUDA backend: y[m * pitch + n] = round(sum_k x(m,k) w(k,n) + bias[n]), or y + sum_k for
// products that add. bf16: one fp32 accumulator per output walks K in ascending steps of 16 (the tensor
// core's own order) from zero, whichever kernel runs: plain chain, skinny or cuBLASLt. fp32: one chain of
// fused multiply-adds over ascending K. The head uses them too.

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/scratch/linear.h"

namespace temper::cuda {

/// Which product of a linear layer it is: how x and w lie in memory.
enum class ProductKind {
  forward,          // x [M, K], w [N, K]
  input_gradient,   // x = dy [M, K], w [K, N]
  weight_gradient,  // x = dy [K, M], w = the layer's input [K, N]: the sum is over tokens
};

struct Product {
  void* y;           // bf16 or fp32 (`out`), rows of `pitch` elements
  const void* x;     // rows of x_pitch elements
  const void* w;     // dense
  const void* bias;  // [N] or null; forward only
  int64_t M, N, K, pitch;
  DType in, out;
  ProductKind kind = ProductKind::forward;
  bool add = false;     // y += in fp32, after the sum; else y is overwritten without being read
  int64_t x_pitch = 0;  // 0: as wide as x is
  float scale = 1;      // of the sum, before its rounding; input gradients only

  int64_t left_pitch() const { return x_pitch != 0 ? x_pitch : kind == ProductKind::weight_gradient ? M : K; }
};

/// Any product, by the fastest kernel of its class.
void multiply(Ctx& ctx, const Product& p);

// ---- the kernels behind it, all of one bit class for bf16

/// One warp per 16 x 8 outputs straight from global memory: any shape; the reference of the others.
void multiply_chain(Lane& lane, const Product& p);
/// fp32, any shape.
void multiply_fp32(Lane& lane, const Product& p);
/// Decode: M <= kSkinnyRows. The weights are streamed once at the rate of memory.
void multiply_skinny(const Libraries& libraries, const Product& p);
/// The same for w = gate over up, [N, K]: y, rows of `pitch` = N / 2 bf16, is the SwiGLU of the product's
/// bf16 outputs.
void multiply_skinny_gated(const Libraries& libraries, const Product& p);
/// Two products of one x, M <= kSkinnyRows, both with bf16 outputs; the second without a bias.
void multiply_skinny_pair(const Libraries& libraries, const Product& p, const Product& second);
/// Can TMA and cuBLASLt address it? Nothing here depends on the number of tokens.
bool is_aligned(const Product& p);

// ---- for the self-tests

/// Roughly normal bf16 numbers of unit variance.
void fill_random(Lane& lane, void* bf16, int64_t count);
/// *count += outputs in the b.M rows and first `columns` columns of a and b whose bits differ.
void count_differing(Lane& lane, int* count, const Product& a, const Product& b, int64_t columns);

}  // namespace temper::cuda
