#pragma once
// Checks that every op must pass, one call each. Values travel as doubles (fp32 and bf16 fit exactly); an op
// under test is a function from a list of tensors to a list of tensors:
//   check_gradient   analytic backward against central differences, in fp64
//   check_dtypes     fp32 and bf16 against fp64 on inputs that all three hold exactly
//   check_threads    the same bits with 1, 2 and 3 threads, in all three types
//   check_rows       any slice of rows has the bits that it has in the whole, in all three types
// TestTensor owns the memory of one tensor, TestCtx an arena and the context made of it:
//   const auto forward = [](Ctx& c, DType dtype, const Many& in) {
//     TestTensor x(in[0], dtype, {5, 7}), y(dtype, {5, 7});
//     my_op(c, y, x);
//     return Many{y.values()};
//   };

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "src/ops/backend.h"
#include "tests/support/random.h"

namespace temper {

using Values = std::vector<double>;
using Many = std::vector<Values>;

/// The nearest value that the type holds (integers are not rounded).
inline double round_to(double x, DType dtype) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(x));
  if (dtype == DType::bf16) return static_cast<double>(static_cast<float>(bf16(static_cast<float>(x))));
  return x;
}
inline Values round_to(Values values, DType dtype) {
  for (double& x : values) x = round_to(x, dtype);
  return values;
}

/// A tensor that owns its memory, filled from and read as doubles. Also converts to Tensor and CTensor.
class TestTensor {
 public:
  /// Without values: filled with NaN (integers: -1), so that nothing unwritten passes a test.
  TestTensor(DType dtype, std::initializer_list<int64_t> shape)
      : view_(make_tensor(nullptr, dtype, shape)), bytes_(static_cast<size_t>(view_.bytes()), '\xff') {}
  TestTensor(const Values& values, DType dtype, std::initializer_list<int64_t> shape)
      : TestTensor(dtype, shape) {
    CHECK(static_cast<int64_t>(values.size()) == view_.size(), "{} values for shape {}", values.size(),
          view_.shape_text());
    for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  TestTensor(const std::vector<int32_t>& values, std::initializer_list<int64_t> shape)
      : TestTensor(Values(values.begin(), values.end()), DType::i32, shape) {}

  operator Tensor() {
    Tensor view = view_;
    view.data = bytes_.data();
    return view;
  }
  operator CTensor() { return static_cast<Tensor>(*this); }

  Values values() const {
    Values out(static_cast<size_t>(view_.size()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = get(i);
    return out;
  }

 private:
  template <class T>
  T read(size_t i) const {
    T x;
    std::memcpy(&x, bytes_.data() + i * sizeof(T), sizeof(T));
    return x;
  }
  template <class T>
  void write(size_t i, T x) {
    std::memcpy(bytes_.data() + i * sizeof(T), &x, sizeof(T));
  }
  double get(size_t i) const {
    switch (view_.dtype) {
      case DType::f32:
        return read<float>(i);
      case DType::bf16:
        return static_cast<float>(read<bf16>(i));
      case DType::f16:
        return fp16_to_float(read<uint16_t>(i));
      case DType::f64:
        return read<double>(i);
      case DType::i32:
        return read<int32_t>(i);
    }
    return 0;
  }
  void set(size_t i, double x) {
    switch (view_.dtype) {
      case DType::f32:
        return write(i, static_cast<float>(x));
      case DType::bf16:
        return write(i, bf16(static_cast<float>(x)));
      case DType::f16:
        return write(i, float_to_fp16(static_cast<float>(x)));
      case DType::f64:
        return write(i, x);
      case DType::i32:
        return write(i, static_cast<int32_t>(x));
    }
  }

  Tensor view_;
  std::vector<char> bytes_;
};

/// A context of the CPU backend.
class TestCtx {
 public:
  explicit TestCtx(int threads = 1) : backend_(Device::cpu, threads) {}
  operator Ctx&() { return backend_.ctx(); }

 private:
  Backend backend_;
};

/// Each |got - want| <= relative * max |want| + absolute. Reports the worst element.
inline void expect_near(const std::string& name, const Values& got, const Values& want, double relative,
                        double absolute = 0.0) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double largest = 0.0, worst = -1.0;
  size_t at = 0;
  for (double x : want) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]);
    if (!(error <= worst)) worst = error, at = i;
    if (std::isnan(error)) break;
  }
  if (want.empty()) return;
  EXPECT_LE(worst, relative * largest + absolute) << name << ": element " << at << " of " << want.size()
                                                  << " is " << got[at] << ", expected " << want[at];
}

/// Equal as bits, -0 and NaN included.
inline void expect_same_bits(const std::string& name, const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint64_t>(got[i]), std::bit_cast<uint64_t>(want[i]))
        << name << ": element " << i << " of " << want.size() << " is " << got[i] << ", expected " << want[i];
}

using OpFn = std::function<Many(Ctx&, DType, const Many& inputs)>;
/// inputs, gradients of the outputs -> gradients of the inputs (an empty list: this input has none).
using BackwardFn = std::function<Many(Ctx&, DType, const Many& inputs, const Many& douts)>;
/// The op on rows [begin, end) of fixed inputs; each output has whole rows.
using RowsFn = std::function<Many(Ctx&, DType, int64_t begin, int64_t end)>;

inline constexpr DType kStorageTypes[] = {DType::f32, DType::bf16, DType::f64};

/// L = sum of <dout, output> for fixed random douts; dL/dinput by central differences with step h (1 + |x|).
/// Passes where the error is at most 1e-6 of the largest gradient of that input, plus 1e-9.
inline void check_gradient(const std::string& name, const Many& inputs, const OpFn& forward,
                           const BackwardFn& backward, double h = 1e-5) {
  TestCtx ctx;
  Many douts;
  for (const Values& out : forward(ctx, DType::f64, inputs))
    douts.push_back(normal_values(static_cast<int64_t>(out.size()), 900 + douts.size()));
  const Many analytic = backward(ctx, DType::f64, inputs, douts);
  ASSERT_EQ(analytic.size(), inputs.size()) << name;
  const auto loss = [&](const Many& at) {
    const Many outputs = forward(ctx, DType::f64, at);
    long double sum = 0;
    for (size_t k = 0; k < outputs.size(); ++k)
      for (size_t i = 0; i < outputs[k].size(); ++i)
        sum += static_cast<long double>(outputs[k][i]) * douts[k][i];
    return sum;
  };
  Many at = inputs;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (analytic[k].empty()) continue;
    Values numeric(inputs[k].size());
    for (size_t i = 0; i < inputs[k].size(); ++i) {
      const double x = inputs[k][i], step = h * (1.0 + std::abs(x)), low = x - step, high = x + step;
      at[k][i] = high;
      const long double above = loss(at);
      at[k][i] = low;
      numeric[i] = static_cast<double>((above - loss(at)) / (high - low));
      at[k][i] = x;
    }
    expect_near(name + ", gradient of input " + std::to_string(k), analytic[k], numeric, 1e-6, 1e-9);
  }
}

/// Tolerances are relative to the largest value of each output.
inline void check_dtypes(const std::string& name, Many inputs, const OpFn& op, double fp32_tolerance = 2e-6,
                         double bf16_tolerance = 1e-2) {
  for (Values& in : inputs) in = round_to(in, DType::bf16);
  TestCtx ctx;
  const Many want = op(ctx, DType::f64, inputs), fp32 = op(ctx, DType::f32, inputs),
             half = op(ctx, DType::bf16, inputs);
  ASSERT_EQ(fp32.size(), want.size()) << name;
  ASSERT_EQ(half.size(), want.size()) << name;
  for (size_t k = 0; k < want.size(); ++k) {
    expect_near(name + ", fp32 output " + std::to_string(k), fp32[k], want[k], fp32_tolerance);
    expect_near(name + ", bf16 output " + std::to_string(k), half[k], want[k], bf16_tolerance);
  }
}

inline void check_threads(const std::string& name, const Many& inputs, const OpFn& op) {
  for (DType dtype : kStorageTypes) {
    TestCtx one(1);
    const Many want = op(one, dtype, inputs);
    for (int threads : {2, 3}) {
      TestCtx ctx(threads);
      const Many got = op(ctx, dtype, inputs);
      ASSERT_EQ(got.size(), want.size()) << name;
      for (size_t k = 0; k < want.size(); ++k)
        expect_same_bits(fmt::format("{} {}, {} threads, output {}", name, dtype_name(dtype), threads, k),
                         got[k], want[k]);
    }
  }
}

/// Slices of 1, 2, 3 and 5 rows at several places of `num_rows`, with 1 and 2 threads.
inline void check_rows(const std::string& name, int64_t num_rows, const RowsFn& op) {
  for (DType dtype : kStorageTypes) {
    TestCtx whole_ctx(1);
    const Many whole = op(whole_ctx, dtype, 0, num_rows);
    for (int64_t count : {1, 2, 3, 5})
      for (int64_t begin = 0; begin + count <= num_rows; begin += std::max<int64_t>(1, num_rows / 7)) {
        TestCtx ctx(static_cast<int>(1 + begin % 2));
        const Many part = op(ctx, dtype, begin, begin + count);
        ASSERT_EQ(part.size(), whole.size()) << name;
        for (size_t k = 0; k < whole.size(); ++k) {
          const int64_t width = static_cast<int64_t>(whole[k].size()) / num_rows;
          const Values want(whole[k].begin() + begin * width, whole[k].begin() + (begin + count) * width);
          expect_same_bits(
              fmt::format("{} {}, rows {}..{}, output {}", name, dtype_name(dtype), begin, begin + count, k),
              part[k], want);
        }
      }
  }
}

/// Rows [begin, end) of `values` seen as rows of `width`.
inline Values slice_rows(const Values& values, int64_t width, int64_t begin, int64_t end) {
  return Values(values.begin() + begin * width, values.begin() + end * width);
}

}  // namespace temper
