// Speed of the gated delta rule's forward on one GPU, heads of Qwen3.5-9B, random data, in bursts timed by
// events: decode in shares of the read rate and beside a plain fp32 recurrence; packed sequences. Prints
// Markdown rows.

#include "kernels/cuda/hybrid/delta_rule.h"
#include "src/ops/hybrid/delta.h"
#include "tests/gpu/burst_times.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/hybrid/recurrence.h"
#include "tests/gpu/read_rate.h"

namespace temper {
namespace {

constexpr DeltaShape kHeads{16, 32, 128, 128};

Tensor normal(Ctx& c, DType dtype, std::initializer_list<int64_t> shape, double scale, double mean,
              int64_t seed) {
  const Tensor t = c.scratch.make(shape, dtype);
  NormalBlock().fill(c.device, t, scale, mean, seed);
  return t;
}
Tensor numbers(Ctx& c, const std::vector<int32_t>& v) {
  const Tensor t = c.scratch.make({std::ssize(v)}, DType::i32);
  device::upload(c.device, t.raw(), v.data(), t.bytes());
  return t;
}

/// Rows of T tokens: keys and queries of about unit length, decays of about 0.98 a row.
struct Rows {
  Tensor qkv, beta, g, o;
  Rows(Ctx& c, int64_t T)
      : qkv(normal(c, DType::bf16, {T, kHeads.qkv_width()}, 0.0884, 0, 1)),
        beta(normal(c, DType::f32, {T, kHeads.value_heads}, 0.1, 0.5, 2)),
        g(normal(c, DType::f32, {T, kHeads.value_heads}, 0.002, -0.02, 3)),
        o(c.scratch.make({T, kHeads.value_width()}, DType::bf16)) {}
};

/// Bytes of a layer: the state that rows read, keys and writes of the chunk so far, the border spread over a
/// chunk, and the row itself.
double decode_bytes(const std::vector<int32_t>& lengths) {
  double bytes = 0;
  for (const int32_t length : lengths) {
    const int64_t place = (length - 1) % kDeltaChunk, size = kHeads.value_width() * kHeads.key_dim;
    bytes +=
        static_cast<double>(2 * size + 2 * place * (kHeads.key_width() + kHeads.value_width()) +
                            6 * size / kDeltaChunk + 2 * (kHeads.qkv_width() + 2 * kHeads.value_width()));
  }
  return bytes;
}

/// Layers take turns, so that the cache holds none of them; sequences stand at all places of a chunk.
void bench_decode(Ctx& c, int64_t S, double read) {
  constexpr int64_t kLayers = 6;
  ArenaScope scope(c.scratch);
  const Rows rows(c, S);
  DeltaPages pages;
  pages.windows = c.scratch.make({kLayers, S, 8}, DType::bf16);
  pages.keys = normal(c, DType::bf16, {kLayers, S, kDeltaChunk * kHeads.key_width()}, 0.0884, 0, 4);
  pages.writes = normal(c, DType::bf16, {kLayers, S, kDeltaChunk * kHeads.value_width()}, 0.0884, 0, 5);
  pages.decays = normal(c, DType::f32, {kLayers, S, kDeltaChunk * kHeads.value_heads}, 0.1, -0.5, 6);
  // two planes of 16 bits, or numbers of 32 that are of their size
  pages.states = normal(c, DType::bf16, {kLayers, S, 2 * kHeads.value_width() * kHeads.key_dim}, 0.1, 0, 7);
  pages.states.dtype = DType::f32;
  pages.states.dims[2] /= 2;
  std::vector<int32_t> cu, slots, lengths;
  for (int32_t n = 0; n <= S; ++n) cu.push_back(n);
  for (int32_t n = 0; n < S; ++n) slots.push_back(n), lengths.push_back(2048 + 1 + n * 37 % 64);
  const CTensor ends = numbers(c, cu);
  pages.tails = pages.from = pages.to = numbers(c, slots);
  pages.lengths = numbers(c, lengths);
  const double ms = milliseconds(c.lane, 4,
                                 [&] {
                                   for (int64_t layer = 0; layer < kLayers; ++layer)
                                     delta_rule_paged(c, rows.o, pages, layer, rows.qkv, rows.beta, rows.g,
                                                      ends, kHeads);
                                 }) /
                    kLayers,
               bytes = decode_bytes(lengths);
  std::printf("| decode, batch %ld | %.1f us | %.0f GB/s | %.0f %% of the read rate |\n", S, ms * 1e3,
              bytes / ms * 1e-6, 100 * bytes / ms * 1e3 / read);
  const double peer = milliseconds(c.lane, 4,
                                   [&] {
                                     for (int64_t layer = 0; layer < kLayers; ++layer)
                                       recurrence_step(
                                           c.lane, rows.o.raw(),
                                           pages.states.as<float>() + layer * S * pages.states.dim(2),
                                           rows.qkv.raw(), rows.beta.as<float>(), rows.g.as<float>(),
                                           static_cast<int>(S), 32, 2);
                                   }) /
                      kLayers,
               moved = 8.0 * static_cast<double>(S * pages.states.dim(2));
  std::printf("| fp32 recurrence, batch %ld | %.1f us | %.0f GB/s | %.2f times the time of decode |\n", S,
              peer * 1e3, moved / peer * 1e-6, peer / ms);
}

void bench_packed(Ctx& c, int64_t sequences, int64_t length) {
  ArenaScope scope(c.scratch);
  const int64_t T = sequences * length;
  const Rows rows(c, T);
  const Tensor u = c.scratch.make({T, kHeads.value_width()}, DType::bf16),
               decays = c.scratch.make({T, kHeads.value_heads}, DType::f32);
  std::vector<int32_t> cu;
  for (int64_t n = 0; n <= sequences; ++n) cu.push_back(static_cast<int32_t>(n * length));
  const CTensor ends = numbers(c, cu);
  const double ms = milliseconds(c.lane, 2, [&] {
    delta_rule_forward(c, rows.o, u, decays, rows.qkv, rows.beta, rows.g, ends, kHeads);
  });
  std::printf("| forward, %ld x %ld | %.3f ms |\n", sequences, length, ms);
}

}  // namespace
}  // namespace temper

int main() {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  const double read = read_rate();
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  std::printf("%s, %.0f GB/s read\n", device::gpu_name().c_str(), read * 1e-9);
  for (const int64_t S : {1, 16, 64, 256}) bench_decode(c, S, read);
  bench_packed(c, 16, 512);
  bench_packed(c, 4, 4096);
  bench_packed(c, 1, 32768);
  return 0;
}
