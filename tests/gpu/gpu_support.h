#pragma once
// What the GPU tests share: the backend of the one GPU, tensors on either device, an op compared over
// devices, models filled fast, and the main of these programs (without a GPU they fail).

#include <gtest/gtest.h>

#include <cstdio>

#include "src/models/model.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"

namespace temper {

/// A tensor of a context's device, filled from and read as doubles. Without values: NaN.
class TensorOn {
 public:
  TensorOn(Ctx& c, DType dtype, std::initializer_list<int64_t> shape)
      : TensorOn(c, TestTensor(dtype, shape)) {}
  TensorOn(Ctx& c, const Values& values, DType dtype, std::initializer_list<int64_t> shape)
      : TensorOn(c, TestTensor(values, dtype, shape)) {}
  TensorOn(Ctx& c, const std::vector<int32_t>& values, std::initializer_list<int64_t> shape)
      : TensorOn(c, TestTensor(values, shape)) {}

  operator Tensor() const { return view_; }
  operator CTensor() const { return view_; }
  Values values() {
    const Tensor host = host_;
    device::copy_from_device(c_.lane, host.raw(), view_.data, view_.bytes());
    return host_.values();
  }

 private:
  TensorOn(Ctx& c, TestTensor host) : c_(c), host_(std::move(host)), view_(c.scratch.like(CTensor(host_))) {
    device::copy_to_device(c.lane, view_.raw(), CTensor(host_).data, view_.bytes());
  }
  Ctx& c_;
  TestTensor host_;
  Tensor view_;
};

/// The op on the GPU in fp32 and bf16 against the CPU in fp64, on inputs that all hold exactly. Tolerances
/// are relative to the largest value of each output.
inline void check_devices(const std::string& name, Many inputs, const OpFn& op, double fp32_tolerance = 2e-6,
                          double bf16_tolerance = 1e-2) {
  for (Values& in : inputs) in = round_to(in, DType::bf16);
  TestCtx cpu;
  Backend gpu(Device::cuda);
  const Many want = op(cpu, DType::f64, inputs);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f32, fp32_tolerance}, {DType::bf16, bf16_tolerance}}) {
    const Many got = op(gpu.ctx(), dtype, inputs);
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t k = 0; k < want.size(); ++k)
      expect_near(fmt::format("{}, {} output {}", name, dtype_name(dtype), k), got[k], want[k], tolerance);
  }
}

/// Fills device memory with a repeated block of normal numbers, beginning at a place of its own for each
/// `seed`.
class NormalBlock {
 public:
  NormalBlock() : numbers_(normal_values(kSize, 77)) {}
  void fill(Device device, const Tensor& t, double scale, double mean, int64_t seed) const {
    dispatch_storage(t.dtype, [&](auto s) {
      using S = decltype(s);
      std::vector<S> block;
      for (double x : numbers_) block.push_back(S(static_cast<float>(mean + scale * x)));
      for (int64_t first = 0, at = 7919 * seed % kSize; first < t.size();) {
        const int64_t n = std::min(kSize - at, t.size() - first);
        device::upload(device, t.as<S>() + first, block.data() + at, n * int64_t{sizeof(S)});
        first += n;
        at = 0;
      }
    });
  }

 private:
  static constexpr int64_t kSize = (1 << 20) + 7;
  std::vector<double> numbers_;
};

/// Matrices and biases of `scale` (embedding and head of `head_scale`), norms about 1.
inline void fill_parameters(ParameterStore& store, double scale, double head_scale) {
  const NormalBlock block;
  int64_t index = 0;
  for (Parameter& p : store.list()) {
    const bool norm = p.spec.init == Init::ones, head = p.spec.name == "embed" || p.spec.name == "head";
    block.fill(store.device(), p.value, norm ? 0.1 : head ? head_scale : scale, norm ? 1.0 : 0.0, index++);
  }
}

inline int gpu_test_main(int argc, char** argv) {
  const device::Found gpus = device::find_gpus();
  if (gpus.count == 0) {
    std::fprintf(stderr, "no GPU: %s\n", gpus.why.c_str());
    return 1;
  }
  device::select_gpu(0);
  std::printf("%s\n", device::gpu_name().c_str());
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace temper
