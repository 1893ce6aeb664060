#pragma once
// One body of tests per op, for every backend that has it: tests/ops/<op>_test.cpp is compiled twice, for the
// CPU (make test) and as tests/gpu/ops/<op>_test for the GPU (make test-gpu). A TEST runs on the device of
// its program, a CPU_TEST on the CPU alone: fp64, threads, the definition of the CPU's bits. Values travel as
// doubles (fp32 and bf16 fit exactly); an op under test is a function from a list of tensors to a list of
// tensors:
//   check_dtypes     fp32 and bf16 against the CPU in fp64, on inputs that all three hold exactly
//   check_rows       any slice of rows has the bits that it has in the whole, in all types of the device
//   check_gradient   on the CPU: analytic backward against central differences, in fp64
//   check_threads    on the CPU: the same bits with 1, 2 and 3 threads, in all three types
// TestCtx is a context of the device with its scratch memory, TestTensor a tensor in it:
//   const auto forward = [](Ctx& c, DType dtype, const Many& in) {
//     TestTensor x(c, in[0], dtype, {5, 7}), y(c, dtype, {5, 7});
//     my_op(c, y, x);
//     return Many{y.values()};
//   };

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
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

template <class T>
void write_element(char* to, size_t i, T x) {
  std::memcpy(to + i * sizeof(T), &x, sizeof(T));
}
template <class T>
T read_element(const char* from, size_t i) {
  T x;
  std::memcpy(&x, from + i * sizeof(T), sizeof(T));
  return x;
}

/// The bytes of these values as a type stores them, and back.
inline std::vector<char> encode(const Values& values, DType dtype) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(dtype_size(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    switch (dtype) {
      case DType::f32:
        write_element(bytes.data(), i, static_cast<float>(x));
        break;
      case DType::bf16:
        write_element(bytes.data(), i, bf16(static_cast<float>(x)));
        break;
      case DType::f16:
        write_element(bytes.data(), i, float_to_fp16(static_cast<float>(x)));
        break;
      case DType::f64:
        write_element(bytes.data(), i, x);
        break;
      case DType::i32:
        write_element(bytes.data(), i, static_cast<int32_t>(x));
        break;
      case DType::u16:
        write_element(bytes.data(), i, static_cast<uint16_t>(x));
        break;
    }
  }
  return bytes;
}
inline Values decode(const std::vector<char>& bytes, DType dtype) {
  Values values(bytes.size() / static_cast<size_t>(dtype_size(dtype)));
  const auto get = [&](size_t i) -> double {
    switch (dtype) {
      case DType::f32:
        return read_element<float>(bytes.data(), i);
      case DType::bf16:
        return static_cast<float>(read_element<bf16>(bytes.data(), i));
      case DType::f16:
        return fp16_to_float(read_element<uint16_t>(bytes.data(), i));
      case DType::f64:
        return read_element<double>(bytes.data(), i);
      case DType::i32:
        return read_element<int32_t>(bytes.data(), i);
      case DType::u16:
        return read_element<uint16_t>(bytes.data(), i);
    }
    return 0;
  };
  for (size_t i = 0; i < values.size(); ++i) values[i] = get(i);
  return values;
}

/// What a tensor of a context's device holds.
inline std::vector<char> bytes_of(const Ctx& c, const CTensor& t) {
  std::vector<char> bytes(static_cast<size_t>(t.bytes()));
  device::copy_from_device(c.lane, bytes.data(), t.data, t.bytes());
  return bytes;
}

/// A tensor for the ops of a context, filled from and read as doubles: on a GPU in its scratch memory, on the
/// CPU in memory of its own that ends where the tensor ends, for a sanitizer to see.
class TestTensor {
 public:
  /// Without values: filled with NaN (integers: -1), so that nothing unwritten passes a test.
  TestTensor(Ctx& c, DType dtype, std::initializer_list<int64_t> shape)
      : TestTensor(c, make_tensor(nullptr, dtype, shape)) {
    device::fill(c.lane, view_.raw(), 0xff, view_.bytes());
  }
  TestTensor(Ctx& c, const Values& values, DType dtype, std::initializer_list<int64_t> shape)
      : TestTensor(c, make_tensor(nullptr, dtype, shape)) {
    CHECK(static_cast<int64_t>(values.size()) == view_.size(), "{} values for shape {}", values.size(),
          view_.shape_text());
    device::copy_to_device(c.lane, view_.raw(), encode(values, dtype).data(), view_.bytes());
  }
  TestTensor(Ctx& c, const std::vector<int32_t>& values, std::initializer_list<int64_t> shape)
      : TestTensor(c, Values(values.begin(), values.end()), DType::i32, shape) {}

  operator Tensor() const { return view_; }
  operator CTensor() const { return view_; }

  Values values() const { return decode(bytes_of(c_, view_), view_.dtype); }

 private:
  TestTensor(Ctx& c, const Tensor& shape) : c_(c), view_(shape) {
    const auto bytes = static_cast<size_t>(shape.bytes());
    if (c.device == Device::cpu) memory_ = std::make_unique<char[]>(bytes);
    view_.data = memory_ ? memory_.get() : c.scratch.allocate(shape.bytes());
  }
  Ctx& c_;
  std::unique_ptr<char[]> memory_;
  Tensor view_;
};

#ifdef TEMPER_TEST_GPU
inline constexpr Device kTestDevice = Device::cuda;
inline constexpr DType kStorageTypes[] = {DType::f32, DType::bf16};
#define CPU_TEST(suite, name) [[maybe_unused]] static void suite##_##name##_on_the_cpu()
#else
inline constexpr Device kTestDevice = Device::cpu;
inline constexpr DType kStorageTypes[] = {DType::f32, DType::bf16, DType::f64};
#define CPU_TEST TEST
#endif

/// A context of the device under test, or of another.
class TestCtx {
 public:
  explicit TestCtx(int threads = 1, Device device = kTestDevice) : backend_(device, threads) {
    if (device != Device::cuda) return;
    // One piece (core/region.h): tools that watch accesses take a bulk copy over two pieces for one out of
    // bounds.
    Arena& scratch = backend_.ctx().scratch;
    const ArenaScope scope(scratch);
    scratch.allocate(int64_t{32} << 20);
  }
  operator Ctx&() { return backend_.ctx(); }

 private:
  Backend backend_;
};

/// main of the programs that run on a GPU, which fail without one.
inline int gpu_test_main(int argc, char** argv) {
  const device::Found gpus = device::find_gpus();
  if (gpus.gpus.empty()) {
    std::fprintf(stderr, "no GPU: %s\n", gpus.why.c_str());
    return 1;
  }
  device::select_gpu(0);
  std::printf("%s\n", device::gpu_name().c_str());
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
inline int op_test_main(int argc, char** argv) {
  if (kTestDevice == Device::cuda) return gpu_test_main(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

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

/// L = sum of <dout, output> for fixed random douts; dL/dinput by central differences with step h (1 + |x|).
/// Passes where the error is at most 1e-6 of the largest gradient of that input, plus 1e-9.
inline void check_gradient(const std::string& name, const Many& inputs, const OpFn& forward,
                           const BackwardFn& backward, double h = 1e-5) {
  TestCtx ctx(1, Device::cpu);
  Many douts;
  for (const Values& out : forward(ctx, DType::f64, inputs))
    douts.push_back(normal_values(static_cast<int64_t>(out.size()), 900 + douts.size()));
  const Many analytic = backward(ctx, DType::f64, inputs, douts);
  ASSERT_EQ(analytic.size(), inputs.size()) << name;
  const auto loss = [&](const Many& at) {
    const ArenaScope scope(static_cast<Ctx&>(ctx).scratch);
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
  TestCtx cpu(1, Device::cpu), ctx;
  const Many want = op(cpu, DType::f64, inputs);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f32, fp32_tolerance}, {DType::bf16, bf16_tolerance}}) {
    const Many got = op(ctx, dtype, inputs);
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t k = 0; k < want.size(); ++k)
      expect_near(fmt::format("{}, {} output {}", name, dtype_name(dtype), k), got[k], want[k], tolerance);
  }
}

inline void check_threads(const std::string& name, const Many& inputs, const OpFn& op) {
  for (DType dtype : kStorageTypes) {
    TestCtx one(1, Device::cpu);
    const Many want = op(one, dtype, inputs);
    for (int threads : {2, 3}) {
      TestCtx ctx(threads, Device::cpu);
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
    TestCtx contexts[] = {TestCtx(1), TestCtx(2)};
    const Many whole = op(contexts[0], dtype, 0, num_rows);
    for (int64_t count : {1, 2, 3, 5})
      for (int64_t begin = 0; begin + count <= num_rows; begin += std::max<int64_t>(1, num_rows / 7)) {
        Ctx& c = contexts[begin % 2];
        ArenaScope scope(c.scratch);
        const Many part = op(c, dtype, begin, begin + count);
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
