// Which kernel computes a product.

#include "kernels/cuda/linear.h"

#include "kernels/cuda/linear_lt.h"
#include "kernels/cuda/linear_trial.h"

namespace temper::cuda {
namespace {

/// Fewer are computed by the plain chain, at the speed of memory in any case.
constexpr int64_t kLeastTokens = 64;
/// Outputs, and tokens of a sum, that cuBLASLt takes at once.
constexpr int64_t kEights = 8;

// ---- skinny kernels, each tested once per weight shape

constexpr int64_t kTestedRows[]{1, 16, 64};

Product with_rows(Product p, int64_t rows) {
  p.M = rows;
  return p;
}

void require_skinny_class(Ctx& ctx, const Product& p) {
  Libraries& libraries = libraries_of(ctx);
  if (!libraries.skinny_shapes.insert({p.N, p.K, false}).second) return;
  for (const int64_t rows : kTestedRows) {
    Trial trial(ctx.lane, with_rows(p, rows));
    if (!trial.same_bits_as_chain([&](const Product& q) { multiply_skinny(libraries, q); }))
      fail_class("the decode kernel", trial.product());
  }
}

void require_gated_class(Ctx& ctx, const Product& p) {
  Libraries& libraries = libraries_of(ctx);
  if (!libraries.skinny_shapes.insert({p.N, p.K, true}).second) return;
  const auto two_steps = [&](Product q) {
    ArenaScope scope(ctx.scratch);
    const Tensor a = make_tensor(q.y, q.out, {q.M, q.pitch}), gate_up = ctx.scratch.make({q.M, q.N}, q.out);
    q.y = gate_up.raw();
    q.pitch = q.N;
    multiply_chain(ctx.lane, q);
    swiglu_forward(ctx, a, gate_up);
  };
  for (const int64_t rows : kTestedRows) {
    Trial trial(ctx.lane, with_rows(p, rows));
    if (!trial.same_bits(
            p.pitch, [&](const Product& q) { multiply_skinny_gated(libraries, q); }, two_steps))
      fail_class("the decode kernel with SwiGLU", trial.product());
  }
}

/// Each of the two on random activations, which the other one then has, too.
void require_pair_class(Ctx& ctx, const Product& p, const Product& second) {
  Libraries& libraries = libraries_of(ctx);
  if (!libraries.pair_shapes.insert({p.N, second.N, p.K}).second) return;
  const auto require = [&](const Product& tested, Product other, auto&& run) {
    for (const int64_t rows : kTestedRows) {
      Trial trial(ctx.lane, with_rows(tested, rows));
      Arena memory(Device::cuda);
      other.M = rows;
      other.x = trial.product().x;
      other.y = memory.allocate(rows * other.pitch * dtype_size(other.out));
      if (!trial.same_bits_as_chain([&](const Product& q) { run(q, other); }))
        fail_class("the decode kernel of two products", trial.product());
    }
  };
  require(p, second,
          [&](const Product& q, const Product& other) { multiply_skinny_pair(libraries, q, other); });
  require(second, p,
          [&](const Product& q, const Product& other) { multiply_skinny_pair(libraries, other, q); });
}

// ---- one function per kind

void multiply_forward(Ctx& ctx, const Product& p) {
  if (p.M <= kSkinnyRows) {
    require_skinny_class(ctx, p);
    return multiply_skinny(libraries_of(ctx), p);
  }
  Product whole = p, rest = p;  // the wgmma family takes outputs in eights
  whole.N = p.N / kEights * kEights;
  if (whole.N > 0 && !multiply_lt(ctx, whole)) fail_class("no algorithm of cuBLASLt", whole);
  if (whole.N == p.N) return;
  rest.N = p.N - whole.N;
  rest.y = static_cast<char*>(p.y) + whole.N * dtype_size(p.out);
  rest.w = static_cast<const char*>(p.w) + whole.N * p.K * dtype_size(p.in);
  CHECK(p.bias == nullptr, "{} outputs with a bias", p.N);
  multiply_chain(ctx.lane, rest);
}

/// A row has the bits of the plain chain for any number of rows, so that number may choose. For very small
/// products the library may list no algorithm of the class.
void multiply_input_gradient(Ctx& ctx, const Product& p) {
  if (p.M < kLeastTokens || !multiply_lt(ctx, p)) multiply_chain(ctx.lane, p);
}

/// Where the library does not take a number of tokens as it is, the last few follow in a chain of their own.
void multiply_weight_gradient(Ctx& ctx, const Product& p) {
  if (p.K < kLeastTokens) return multiply_chain(ctx.lane, p);
  if (multiply_lt(ctx, p)) return;
  Product whole = p, rest = p;
  whole.K = p.K / kEights * kEights;
  rest.K = p.K - whole.K;
  if (rest.K == 0 || !multiply_lt(ctx, whole)) return multiply_chain(ctx.lane, p);
  rest.x = static_cast<const char*>(p.x) + whole.K * p.left_pitch() * dtype_size(p.in);
  rest.w = static_cast<const char*>(p.w) + whole.K * p.N * dtype_size(p.in);
  rest.add = true;
  multiply_chain(ctx.lane, rest);
}

}  // namespace

bool is_aligned(const Product& p) {
  constexpr uintptr_t kBytes = 16;
  for (const void* at : {p.x, p.w, static_cast<const void*>(p.y)})
    if (reinterpret_cast<uintptr_t>(at) % kBytes != 0) return false;
  if (p.in != DType::bf16 || p.pitch % kEights != 0 || p.left_pitch() % kEights != 0) return false;
  switch (p.kind) {
    case ProductKind::forward:
      return p.K % 64 == 0;  // boxes of the skinny kernel
    case ProductKind::input_gradient:
      return p.K % kEights == 0 && p.N % kEights == 0;
    case ProductKind::weight_gradient:
      return p.M % kEights == 0 && p.N % kEights == 0;
  }
  return false;
}

void multiply(Ctx& ctx, const Product& p) {
  if (p.M == 0 || p.N == 0 || (p.K == 0 && p.add)) return;
  if (p.in == DType::f32) return multiply_fp32(ctx.lane, p);
  if (!is_aligned(p)) return multiply_chain(ctx.lane, p);
  switch (p.kind) {
    case ProductKind::forward:
      return multiply_forward(ctx, p);
    case ProductKind::input_gradient:
      return multiply_input_gradient(ctx, p);
    case ProductKind::weight_gradient:
      return multiply_weight_gradient(ctx, p);
  }
}

void linear_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor bias) {
  CHECK(y.dtype == x.dtype || y.dtype == DType::f32, "y is {}, x is {}", dtype_name(y.dtype),
        dtype_name(x.dtype));
  multiply(ctx,
           {y.raw(), x.data, w.data, bias.data, x.dim(0), w.dim(0), x.dim(1), w.dim(0), x.dtype, y.dtype});
}

void linear_pair_forward(Ctx& ctx, Tensor y, Tensor u, CTensor x, CTensor w, CTensor bias, CTensor a) {
  const Product p{y.raw(),  x.data,   w.data,   bias.data, x.dim(0),
                  w.dim(0), x.dim(1), w.dim(0), x.dtype,   y.dtype};
  const Product second{u.raw(),  x.data,   a.data,   nullptr, x.dim(0),
                       a.dim(0), x.dim(1), a.dim(0), x.dtype, u.dtype};
  if (p.M > 0 && p.M <= kSkinnyRows && is_aligned(p) && is_aligned(second)) {
    require_pair_class(ctx, p, second);
    return multiply_skinny_pair(libraries_of(ctx), p, second);
  }
  multiply(ctx, p);
  multiply(ctx, second);
}

void linear_swiglu_forward(Ctx& ctx, Tensor a, CTensor x, CTensor w, CTensor bias) {
  const Product p{a.raw(),  x.data,   w.data,   bias.data, x.dim(0),
                  w.dim(0), x.dim(1), a.dim(1), x.dtype,   a.dtype};
  if (p.M > 0 && is_skinny_swiglu(p.M, p.K, p.pitch, p.in) && is_aligned(p)) {
    require_gated_class(ctx, p);
    return multiply_skinny_gated(libraries_of(ctx), p);
  }
  ArenaScope scope(ctx.scratch);
  const Tensor gate_up = linear_swiglu_forward_scratch(ctx.scratch, p.M, p.pitch, x.dtype);
  linear_forward(ctx, gate_up, x, w, bias);
  swiglu_forward(ctx, a, gate_up);
}

void linear_backward_input(Ctx& ctx, Tensor dx, CTensor dy, CTensor w) {
  const int64_t T = dy.dim(0), N = w.dim(0), K = w.dim(1);
  multiply(ctx,
           {dx.raw(), dy.data, w.data, nullptr, T, K, N, K, dy.dtype, dx.dtype, ProductKind::input_gradient});
}

void adapter_backward_low(Ctx& ctx, Tensor du, CTensor dy, CTensor v, double scale) {
  const int64_t T = dy.dim(0), N = v.dim(0), R = v.dim(1);
  Product p{du.raw(), dy.data, v.data, nullptr, T, R, N, R, dy.dtype, du.dtype, ProductKind::input_gradient};
  p.scale = static_cast<float>(scale);
  multiply(ctx, p);
}

void linear_backward_weight(Ctx& ctx, Tensor dw, CTensor dy, CTensor x, GradWrite write) {
  const int64_t T = dy.dim(0), N = dy.dim(1), K = x.dim(1);
  multiply(ctx, {dw.raw(), dy.data, x.data, nullptr, N, K, T, K, dy.dtype, dw.dtype,
                 ProductKind::weight_gradient, write == GradWrite::add});
}

}  // namespace temper::cuda
