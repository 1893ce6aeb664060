// Speed of the row operations of hybrid models at the widths of a model of 9B, in shares of a plain copy:
// many rows as training and prefill have them, and one row of each sequence, in a graph, as decode has.
// Prints Markdown rows.

#include "src/ops/hybrid/delta.h"
#include "src/ops/hybrid/gated_heads.h"
#include "src/ops/hybrid/offset_norm.h"
#include "tests/gpu/copy_shares.h"

namespace temper {
namespace {

constexpr int64_t kHidden = 4096, kTaps = 4, kMany = 16384, kFew = 1024;
constexpr DeltaShape kShape{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
constexpr AttentionShape kHeads{.q_heads = 16, .kv_heads = 4, .head_dim = 256};

/// Rows of a kind of work.
class Rows {
 public:
  Rows(Bencher& b, int64_t tokens) : b_(b), tokens_(tokens) {}

  bool decodes() const { return tokens_ <= kFew; }
  Tensor normal(int64_t width, DType dtype = DType::bf16) { return b_.normal({tokens_, width}, dtype); }
  /// `moved`: bytes of a row.
  template <class Run>
  void measure(const char* op, int64_t moved, Run&& run) {
    const std::string name = fmt::format("{}, {} rows", op, tokens_);
    const auto bytes = static_cast<double>(moved * tokens_);
    if (decodes())
      b_.measure_in_graph(name, bytes, [&](int64_t) { run(); });
    else
      b_.measure(name, bytes, [&](int64_t) { run(); });
  }
  Bencher& bencher() { return b_; }
  Ctx& c() { return b_.c(); }
  int64_t tokens() const { return tokens_; }

 private:
  Bencher& b_;
  int64_t tokens_;
};

CTensor numbers(Ctx& c, const std::vector<int32_t>& list) {
  return to_device(c, view_of(list.data(), {std::ssize(list)}));
}

void bench_conv(Rows& r) {
  Ctx& c = r.c();
  ArenaScope scope(c.scratch);
  const int64_t channels = kShape.qkv_width(), sequences = r.decodes() ? r.tokens() : 4;
  std::vector<int32_t> ends{0}, tails, lengths, slots(static_cast<size_t>(sequences), 0);
  for (int64_t n = 0; n < sequences; ++n) {
    ends.push_back(static_cast<int32_t>((n + 1) * r.tokens() / sequences));
    tails.push_back(static_cast<int32_t>(sequences - 1 - n));
    lengths.push_back(ends[n + 1] - ends[n] + 100);
  }
  const CTensor cu = numbers(c, ends), slot = numbers(c, slots);
  const Tensor x = r.normal(kShape.projected_width()), y = r.normal(channels),
               w = r.bencher().normal({channels, kTaps}, DType::bf16),
               windows = r.bencher().normal({1, sequences, (kTaps - 1) * channels}, DType::bf16),
               tail = r.bencher().normal({1, sequences, 1}, DType::bf16),
               state = r.bencher().normal({1, sequences, 1}, DType::f32);
  const DeltaPages pages{
      windows, tail, tail, state, state, numbers(c, tails), slot, slot, numbers(c, lengths)};
  r.measure("causal_conv_forward", 4 * channels, [&] { causal_conv_forward(c, y, x, w, cu); });
  r.measure("causal_conv_paged", (r.decodes() ? 16 : 4) * channels,
            [&] { causal_conv_paged(c, y, pages, 0, x, w, cu); });
  if (r.decodes()) return;
  const Tensor dx = r.normal(kShape.projected_width()),
               dw = r.bencher().normal({channels, kTaps}, DType::f32);
  r.measure("causal_conv_backward", 6 * channels, [&] { causal_conv_backward(c, dx, dw, y, x, w, cu); });
}

void bench_delta(Rows& r) {
  Ctx& c = r.c();
  ArenaScope scope(c.scratch);
  const int64_t heads = kShape.value_heads, values = kShape.value_width(), keys = 2 * kShape.key_width();
  const Tensor x = r.normal(kShape.projected_width()), y = r.normal(kShape.qkv_width()),
               beta = r.normal(heads, DType::f32), g = r.normal(heads, DType::f32),
               a_log = r.bencher().normal({heads}, DType::f32),
               bias = r.bencher().normal({heads}, DType::bf16), o = r.normal(values), out = r.normal(values),
               rstd = r.normal(heads, DType::f32), w = r.bencher().normal({kShape.value_dim}, DType::f32);
  r.measure("unit_heads_forward", 4 * keys, [&] { unit_heads_forward(c, y, kShape); });
  r.measure("delta_gates_forward", 12 * heads,
            [&] { delta_gates_forward(c, beta, g, x, a_log, bias, kShape); });
  r.measure("gated_norm_forward", 6 * values,
            [&] { gated_norm_forward(c, out, rstd, o, x, w, kShape, 1e-6); });
  if (r.decodes()) return;
  const Tensor dx = r.normal(kShape.projected_width()), dy = r.normal(kShape.qkv_width()),
               da_log = r.bencher().normal({heads}, DType::f32),
               dbias = r.bencher().normal({heads}, DType::f32),
               dw = r.bencher().normal({kShape.value_dim}, DType::f32);
  r.measure("unit_heads_backward", 6 * keys, [&] { unit_heads_backward(c, dy, y, kShape); });
  r.measure("delta_gates_backward", 22 * heads,
            [&] { delta_gates_backward(c, dx, da_log, dbias, beta, g, beta, g, x, a_log, bias, kShape); });
  r.measure("gated_norm_backward, in place", 10 * values,
            [&] { gated_norm_backward(c, out, dx, dw, out, o, x, w, rstd, kShape); });
}

void bench_norm(Rows& r) {
  Ctx& c = r.c();
  ArenaScope scope(c.scratch);
  const Tensor x = r.normal(kHidden), y = r.normal(kHidden), sum = r.normal(kHidden),
               past = r.normal(kHidden), w = r.bencher().normal({kHidden}, DType::bf16),
               rstd = r.normal(1, DType::f32), dw = r.bencher().normal({kHidden}, DType::f32);
  const Tensor scale = make_tensor(rstd.raw(), DType::f32, {r.tokens()});
  r.measure("offset_norm_forward", 4 * kHidden, [&] { offset_norm_forward(c, y, scale, x, w, 1e-6); });
  r.measure("add_offset_norm_forward", 8 * kHidden,
            [&] { add_offset_norm_forward(c, y, sum, scale, x, past, w, 1e-6); });
  if (r.decodes()) return;
  r.measure("offset_norm_backward", 8 * kHidden,
            [&] { offset_norm_backward(c, sum, dw, y, past, x, w, scale); });
}

void bench_heads(Rows& r) {
  Ctx& c = r.c();
  ArenaScope scope(c.scratch);
  const int64_t q = kHeads.q_width(), kv = kHeads.kv_width(), dh = kHeads.head_dim;
  const Tensor x = r.normal(2 * q + 2 * kv), qkv = r.normal(q + 2 * kv),
               rstd = r.normal(kHeads.q_heads + kHeads.kv_heads, DType::f32),
               wq = r.bencher().normal({dh}, DType::bf16), wk = r.bencher().normal({dh}, DType::bf16),
               cosine = r.bencher().normal({4096, 32}, DType::f32),
               sine = r.bencher().normal({4096, 32}, DType::f32), o = r.normal(q), y = r.normal(q);
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < r.tokens(); ++t) positions.push_back(static_cast<int32_t>(t % 4096));
  const RopeInput rope{numbers(c, positions), cosine, sine};
  r.measure("gated_heads_forward", 4 * (q + 2 * kv),
            [&] { gated_heads_forward(c, qkv, rstd, x, wq, wk, rope, kHeads, 1e-6); });
  r.measure("output_gate_forward", 6 * q, [&] { output_gate_forward(c, y, o, x, kHeads); });
  if (r.decodes()) return;
  const Tensor dx = r.normal(2 * q + 2 * kv), dwq = r.bencher().normal({dh}, DType::f32),
               dwk = r.bencher().normal({dh}, DType::f32);
  r.measure("gated_heads_backward", 6 * (q + kv) + 4 * kv,
            [&] { gated_heads_backward(c, dx, dwq, dwk, qkv, x, wq, wk, rstd, rope, kHeads); });
  r.measure("output_gate_backward, in place", 10 * q,
            [&] { output_gate_backward(c, y, dx, y, o, x, kHeads); });
}

}  // namespace
}  // namespace temper

int main() {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  const double copy = copy_rate();
  std::printf("%s, reads %.0f GB/s, copies %.0f GB/s (read and written)\n\n", device::gpu_name().c_str(),
              read_rate() * 1e-9, copy * 1e-9);
  Bencher b(copy);
  for (const int64_t tokens : {kMany, int64_t{64}, int64_t{256}}) {
    Rows rows(b, tokens);
    bench_conv(rows);
    bench_delta(rows);
    bench_norm(rows);
    bench_heads(rows);
  }
}
