// Time of the gated delta rule's backward at the heads of a model of 9B, kernel by kernel, random data.
// Prints Markdown rows.

#include "src/ops/hybrid/delta.h"
#include "tests/gpu/burst_times.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/kernel_times.h"

namespace temper {
namespace {

constexpr DeltaShape kHeads{16, 32, 128, 128};

struct Rows {
  Rows(Ctx& c, int64_t rows) : tokens(rows) {
    const NormalBlock block;
    const auto make = [&](int64_t width, DType dtype, double scale, double mean, int64_t seed) {
      const Tensor t = c.scratch.make({tokens, width}, dtype);
      block.fill(Device::cuda, t, scale, mean, seed);
      return t;
    };
    qkv = make(kHeads.qkv_width(), DType::bf16, 0.088, 0, 1);
    u = make(kHeads.value_width(), DType::bf16, 0.05, 0, 2);
    d_o = make(kHeads.value_width(), DType::bf16, 0.05, 0, 3);
    beta = make(kHeads.value_heads, DType::f32, 0.1, 0.5, 4);
    dqkv = make(kHeads.qkv_width(), DType::bf16, 0, 0, 5);
    dbeta = make(kHeads.value_heads, DType::f32, 0, 0, 6);
    dg = make(kHeads.value_heads, DType::f32, 0, 0, 7);
    std::vector<float> sums(static_cast<size_t>(tokens * kHeads.value_heads));
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = -0.02f * static_cast<float>(static_cast<int64_t>(i) / kHeads.value_heads % kDeltaChunk + 1);
    decays = to_device(c, view_of(sums.data(), {tokens, kHeads.value_heads}));
  }
  int64_t tokens;
  Tensor qkv, u, d_o, beta, dqkv, dbeta, dg;
  CTensor decays;
};

void bench(Ctx& c, int32_t sequences, int32_t length) {
  ArenaScope scope(c.scratch);
  const Rows r(c, int64_t{sequences} * length);
  std::vector<int32_t> ends;
  for (int32_t s = 0; s <= sequences; ++s) ends.push_back(s * length);
  const CTensor cu = to_device(c, view_of(ends.data(), {std::ssize(ends)}));
  const auto run = [&] {
    delta_rule_backward(c, r.dqkv, r.dbeta, r.dg, r.d_o, r.qkv, r.beta, r.u, r.decays, cu, kHeads);
  };
  const double ms = milliseconds(c.lane, 4, run);
  std::printf("| %d x %d | all | %.3f ms |\n", sequences, length, ms);
  KernelTimes times;
  run();
  for (const auto& [name, time] : times.of(c.lane))
    std::printf("| %d x %d | %s | %.3f ms |\n", sequences, length, readable(name).c_str(), time.milliseconds);
}

}  // namespace
}  // namespace temper

int main() {
  using namespace temper;
  device::select_gpu(0);
  std::printf("%s, heads %ld/%ld of %ld x %ld\n", device::gpu_name().c_str(), kHeads.key_heads,
              kHeads.value_heads, kHeads.key_dim, kHeads.value_dim);
  Backend gpu(Device::cuda);
  bench(gpu.ctx(), 4, 4096);
  bench(gpu.ctx(), 16, 1024);
  bench(gpu.ctx(), 1, 16384);
  bench(gpu.ctx(), 1, 32768);
}
