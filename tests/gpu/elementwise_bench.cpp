// Speed of what training does between products and what adapters take beside them, random data, in shares of
// a plain copy: bytes that must be moved over the time by events. Inputs take turns, so that the cache does
// not hold them. Prints Markdown rows. usage: elementwise_bench [adapters]   (of adapters alone)

#include <cstring>

#include "src/ops/adapters/adapter.h"
#include "src/ops/embedding.h"
#include "src/ops/glu.h"
#include "src/ops/linear.h"
#include "src/ops/norm.h"
#include "src/ops/optimizer.h"
#include "tests/gpu/copy_shares.h"

namespace temper {
namespace {

constexpr int64_t kTokens = 8192;

struct Bench {
  const char* name;
  int64_t hidden, ffn, q_heads;
};

Tensor set_of(const Tensor& all, int64_t set) { return rows(all, set * kTokens, (set + 1) * kTokens); }

void bench_norm(Bencher& b, const Bench& m) {
  Ctx& c = b.c();
  ArenaScope scope(c.scratch);
  const int64_t D = m.hidden;
  const Tensor dy = b.normal({kSets * kTokens, D}, DType::bf16),
               past = b.normal({kSets * kTokens, D}, DType::bf16),
               x = b.normal({kSets * kTokens, D}, DType::bf16),
               dx = b.normal({kSets * kTokens, D}, DType::bf16), w = b.normal({D}, DType::bf16, 1),
               rstd = b.normal({kTokens}, DType::f32, 1), dw = b.normal({D}, DType::f32);
  b.measure(fmt::format("rmsnorm_backward {}", m.name), 8.0 * static_cast<double>(kTokens * D),
            [&](int64_t i) {
              rmsnorm_backward(c, set_of(dx, i), dw, set_of(dy, i), set_of(past, i), set_of(x, i), w, rstd);
            });
}

void bench_heads(Bencher& b, const Bench& m) {
  Ctx& c = b.c();
  ArenaScope scope(c.scratch);
  const AttentionShape shape{m.q_heads, 8, 128};
  const int64_t W = shape.qkv_width(), heads = shape.q_heads + shape.kv_heads;
  const Tensor dx = b.normal({kSets * kTokens, W}, DType::bf16),
               x = b.normal({kSets * kTokens, W}, DType::bf16), wq = b.normal({128}, DType::bf16, 1),
               wk = b.normal({128}, DType::bf16, 1), rstd = b.normal({kTokens, heads}, DType::f32, 1),
               dwq = b.normal({128}, DType::f32), dwk = b.normal({128}, DType::f32),
               cosine = b.normal({kTokens, 64}, DType::f32), sine = b.normal({kTokens, 64}, DType::f32);
  std::vector<int32_t> positions(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % 4096);
  const CTensor at = to_device(c, view_of(positions.data(), {kTokens}));
  b.measure(fmt::format("head_norm_rope_backward {}, in place", m.name),
            6.0 * static_cast<double>(kTokens * heads * 128), [&](int64_t i) {
              head_norm_rope_backward(c, set_of(dx, i), dwq, dwk, set_of(dx, i), set_of(x, i), wq, wk, rstd,
                                      {at, cosine, sine}, shape);
            });
}

void bench_swiglu(Bencher& b, const Bench& m) {
  Ctx& c = b.c();
  ArenaScope scope(c.scratch);
  const Tensor gate_up = b.normal({kSets * kTokens, 2 * m.ffn}, DType::bf16),
               da = b.normal({kSets * kTokens, m.ffn}, DType::bf16);
  b.measure(fmt::format("swiglu_backward {}, in place", m.name), 10.0 * static_cast<double>(kTokens * m.ffn),
            [&](int64_t i) { swiglu_backward(c, set_of(gate_up, i), set_of(da, i), set_of(gate_up, i)); });
}

/// What adapters of rank 32 of gate and up take beside the product, step by step.
void bench_adapters(Bencher& b, const Bench& m) {
  Ctx& c = b.c();
  ArenaScope scope(c.scratch);
  constexpr int64_t kRank = 32, R = 2 * kRank;
  const int64_t D = m.hidden, F = m.ffn, N = 2 * F;
  const Tensor x = b.normal({kSets * kTokens, D}, DType::bf16),
               y = b.normal({kSets * kTokens, N}, DType::bf16), out = b.normal({kTokens, F}, DType::bf16),
               u = b.normal({kTokens, R}, DType::bf16), a = b.normal({R, D}, DType::bf16),
               own = b.normal({N, kRank}, DType::bf16), whole = b.normal({N, R}, DType::bf16),
               low = b.normal({kTokens, R}, DType::bf16), down = b.normal({kRank, F}, DType::bf16),
               low_down = b.normal({kTokens, kRank}, DType::bf16), da = b.normal({R, D}, DType::f32),
               dw = b.normal({N, R}, DType::f32), db = b.normal({N, kRank}, DType::f32);
  const AdapterBlocks blocks{2, {0, F}, {0, F}, {F, F}};
  const auto bytes = [](int64_t columns) { return 2.0 * static_cast<double>(kTokens * columns); };
  const auto measure = [&](const char* what, double moved, auto&& run) {
    b.measure(fmt::format("adapters of gate and up {}, {}", m.name, what), moved, run);
  };
  measure("u", bytes(D + R), [&](int64_t i) { linear_forward(c, u, set_of(x, i), a, {}); });
  measure("added to outputs", bytes(2 * N + R), [&](int64_t i) {
    adapter_forward(c, set_of(y, i), {u, own, 1e-3, blocks});
  });
  measure("SwiGLU of both", bytes(N + F + R), [&](int64_t i) {
    adapter_swiglu_forward(c, out, set_of(y, i), {u, own, 1e-3, blocks});
  });
  measure("SwiGLU of both, kept", bytes(2 * N + F + R), [&](int64_t i) {
    adapter_swiglu_forward_kept(c, out, set_of(y, i), {u, own, 1e-3, blocks});
  });
  measure("du", bytes(N + R), [&](int64_t i) { adapter_backward_low(c, low, set_of(y, i), whole, 0.5); });
  measure("dB", bytes(N + R),
          [&](int64_t i) { adapter_backward_b(c, db, set_of(y, i), u, 0.5, blocks, GradWrite::add); });
  measure("dB as one product", bytes(N + R),
          [&](int64_t i) { linear_backward_weight(c, dw, set_of(y, i), u, GradWrite::first); });
  measure("dA", bytes(D + R), [&](int64_t i) { adapter_backward_a(c, da, u, set_of(x, i), GradWrite::add); });
  measure("dA as one product", bytes(D + R),
          [&](int64_t i) { linear_backward_weight(c, da, u, set_of(x, i), GradWrite::add); });
  measure("added to dx", bytes(2 * D + R), [&](int64_t i) { adapter_backward_input(c, set_of(x, i), u, a); });
  measure("SwiGLU's gradient with what is added to it", bytes(5 * F + kRank),
          [&](int64_t i) { adapter_swiglu_backward(c, set_of(y, i), out, low_down, down, set_of(y, i)); });
}

void bench_embedding(Bencher& b, const char* name, int32_t ids) {
  Ctx& c = b.c();
  ArenaScope scope(c.scratch);
  constexpr int64_t D = 4096, kVocabulary = 151936;
  const Tensor dw = b.normal({kVocabulary, D}, DType::f32), dy = b.normal({kSets * kTokens, D}, DType::bf16);
  const std::vector<int32_t> list = random_ids(kTokens, ids, 5);
  const CTensor tokens = to_device(c, view_of(list.data(), {kTokens}));
  std::vector<int32_t> distinct = list;
  std::sort(distinct.begin(), distinct.end());
  const auto rows = static_cast<double>(std::unique(distinct.begin(), distinct.end()) - distinct.begin());
  b.measure(fmt::format("embedding_backward 8k x 4096, {}", name), (2.0 * kTokens + 8.0 * rows) * D,
            [&](int64_t i) { embedding_backward(c, dw, set_of(dy, i), tokens, -1); });
}

void bench_update(Bencher& b) {
  Ctx& c = b.c();
  ArenaScope scope(c.scratch);
  constexpr int64_t n = int64_t{512} << 20;
  const Tensor weight = b.normal({n}, DType::bf16), master = b.normal({n}, DType::f32),
               m = b.normal({n}, DType::f32), v = b.normal({n}, DType::f32, 9),
               grad = b.normal({n}, DType::f32), sum = b.normal({2}, DType::f32);
  std::vector<FlatRange> decays;
  for (int64_t at = 0; at < n; at += n / 200) decays.push_back({at, std::min(n, at + n / 200 - 4096)});
  const auto measure = [&](const char* formats, double bytes, const Tensor& masters, const Tensor& first,
                           const Tensor& second) {
    b.measure(fmt::format("adamw_step, 512M elements{}", formats), bytes * n, [&](int64_t i) {
      adamw_step(c, weight, masters, first, second, grad, decays,
                 {.lr = 1e-5, .weight_decay = 0.1, .count = i + 1});
    });
  };
  measure("", 30, master, m, v);
  const Tensor remainder = make_tensor(master.raw(), DType::u16, {n});
  measure(", remainder", 28, remainder, m, v);
  const Tensor short_m = b.normal({n}, DType::bf16), short_v = b.normal({n}, DType::bf16, 9);
  measure(", remainder, bf16 moments", 20, remainder, short_m, short_v);
  Arena host, wide;  // what lies in host memory comes and goes over the link
  const Tensor far_master = host.make({n}, DType::u16), far_m = host.make({n}, DType::bf16),
               far_v = host.make({n}, DType::bf16);
  host.pin();
  for (const Tensor& t : {far_master, far_m, far_v})
    device::copy_from_device(c.lane, t.raw(), (t.data == far_v.data ? short_v : short_m).data, t.bytes());
  measure(", remainder, bf16 moments, in host memory", 20, far_master, far_m, far_v);
  const Tensor wide_m = wide.make({n}, DType::f32), wide_v = wide.make({n}, DType::f32);
  wide.pin();
  device::copy_from_device(c.lane, wide_m.raw(), m.data, m.bytes());
  device::copy_from_device(c.lane, wide_v.raw(), v.data, v.bytes());
  measure(", remainder, in host memory", 28, far_master, wide_m, wide_v);
  b.measure("copy of 1 GiB of weights from host memory", 2.0 * n,
            [&](int64_t) { device::copy_to_device(c.lane, weight.raw(), far_m.data, weight.bytes()); });
  b.measure("round_master, 512M elements", 6.0 * n, [&](int64_t) { round_master(c, weight, master); });
  const Tensor slot = make_tensor(sum.raw(), DType::f64, {1});
  b.measure("sum_of_squares, 512M elements", 4.0 * n, [&](int64_t) { sum_of_squares(c, slot, grad); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  const bool adapters_alone = argc > 1 && std::strcmp(argv[1], "adapters") == 0;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  const double copy = copy_rate();
  std::printf("%s, reads %.0f GB/s, copies %.0f GB/s (read and written)\n\n", device::gpu_name().c_str(),
              read_rate() * 1e-9, copy * 1e-9);
  Bencher b(copy);
  for (const Bench& m : {Bench{"8B", 4096, 12288, 32}, Bench{"1.7B", 2048, 6144, 16}}) bench_adapters(b, m);
  if (adapters_alone) return 0;
  for (const Bench& m : {Bench{"8B", 4096, 12288, 32}, Bench{"0.6B", 1024, 3072, 16}}) {
    bench_norm(b, m);
    bench_heads(b, m);
    bench_swiglu(b, m);
  }
  bench_embedding(b, "ids of all", 151936);
  bench_embedding(b, "1,000 ids", 1000);
  bench_embedding(b, "one id", 1);
  bench_update(b);
}
