// Attention on the GPU against a second opinion; tests/ops/attention_paged_test.cpp has what every backend is
// asked.

#include "tests/gpu/cudnn_attention.h"
#include "tests/ops/packed_attention.h"

namespace temper {
namespace {

/// Root mean square of a - b over that of b, and the largest difference, of rows in [begin, end) of every
/// head.
struct Distance {
  double relative = 0, most = 0;
};
template <class T>
Distance distance(const std::vector<T>& a, const std::vector<T>& b) {
  double squares = 0, size = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(static_cast<float>(a[i])),
                 y = static_cast<double>(static_cast<float>(b[i]));
    squares += (x - y) * (x - y);
    size += y * y;
    most = std::max(most, std::isfinite(x) && std::isfinite(y) ? std::abs(x - y) : 1e30);
  }
  return {std::sqrt(squares / size), most};
}

/// Sequences that are too long for the CPU: cuDNN's fused kernel is the second opinion. Two roundings of bf16
/// (output, probabilities) of either side lie between the results.
TEST(GpuAttention, AgreesWithCudnnOnLongSequences) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const std::shared_ptr<Cudnn> cudnn = Cudnn::open(c.lane);
  if (cudnn == nullptr) GTEST_SKIP() << "no libcudnn.so.9, or no cudnn.h when this was compiled";
  for (const AttentionShape shape : {AttentionShape{32, 8, 128}, {14, 2, 64}, {8, 8, 128}}) {
    const AttentionCase what{shape};
    for (const std::vector<int32_t>& lengths :
         {std::vector<int32_t>{16384}, {8192, 8192}, {1, 5000, 8191, 129, 12345, 4097}}) {
      ArenaScope scope(c.scratch);
      const PackedAttention ours(c, what, lengths, 2.0);
      const Tensor out = c.scratch.like(ours.out());
      std::vector<float> lse(static_cast<size_t>(ours.lse().size()));
      for (size_t s = 0; s < lengths.size(); ++s) {  // one sequence at a time
        const int64_t n = lengths[s], first = ours.cu()[s];
        ArenaScope one(c.scratch);
        const Tensor own = c.scratch.make({shape.q_heads, n}, DType::f32);
        const CudnnAttention peer(cudnn, 1, n, shape, ours.scale());
        peer.run(rows(CTensor(ours.qkv()), first, first + n).data, rows(out, first, first + n).raw(),
                 own.raw());
        const std::vector<float> values = to_host<float>(c, own);
        for (int64_t h = 0; h < shape.q_heads; ++h)
          std::copy_n(values.begin() + h * n, n, lse.begin() + h * ours.cu().back() + first);
      }
      const Distance o = distance(to_host<bf16>(c, ours.out()), to_host<bf16>(c, out)),
                     l = distance(to_host<float>(c, ours.lse()), lse);
      std::printf(
          "cuDNN %zu, heads %ld/%ld of %ld, %zu sequences, %d rows: out %.1e (most %.1e), lse %.1e (%.1e)\n",
          cudnn->version(), shape.q_heads, shape.kv_heads, shape.head_dim, lengths.size(), ours.cu().back(),
          o.relative, o.most, l.relative, l.most);
      EXPECT_LE(o.relative, 5e-3);
      EXPECT_LE(o.most, 6e-2);
      EXPECT_LE(l.most, 2e-4);
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
