// Speed of the attention kernels: packed forward and backward in FLOP/s (causal pairs only) against the
// multiply-add peak of the threads, paged decode in bytes of keys and values per second against a plain sum
// over the same pages. Usage: attention_bench [threads]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "src/ops/attention.h"
#include "src/ops/backend.h"
#include "tests/bench/measure.h"

namespace temper {
namespace {

using namespace bench;

struct Setup {
  const char* name;
  AttentionShape shape;
  int64_t length, sequences;
};

template <class S>
std::vector<S> normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<S> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(S(distribution(random)));
  return values;
}

/// `peaks`: the multiply-add peak of S in units of that of fp32.
template <class S>
void bench_packed(Ctx& c, const Setup& setup, const char* dtype, double peaks) {
  using A = Accumulate<S>;
  const AttentionShape& shape = setup.shape;
  const int64_t T = setup.length * setup.sequences;
  std::vector<int32_t> cu;
  for (int64_t s = 0; s <= setup.sequences; ++s) cu.push_back(static_cast<int32_t>(s * setup.length));
  std::vector<S> qkv = normal<S>(T * shape.qkv_width(), 1), dout = normal<S>(T * shape.q_width(), 2);
  std::vector<S> out(dout.size()), dqkv(qkv.size());
  std::vector<A> lse(static_cast<size_t>(shape.q_heads * T));
  const Tensor qkv_t = make_tensor(qkv.data(), kDTypeOf<S>, {T, shape.qkv_width()});
  const Tensor dqkv_t = make_tensor(dqkv.data(), kDTypeOf<S>, {T, shape.qkv_width()});
  const Tensor out_t = make_tensor(out.data(), kDTypeOf<S>, {T, shape.q_width()});
  const Tensor dout_t = make_tensor(dout.data(), kDTypeOf<S>, {T, shape.q_width()});
  const Tensor lse_t = make_tensor(lse.data(), kDTypeOf<A>, {shape.q_heads, T});
  const CTensor cu_t = view_of(cu.data(), {setup.sequences + 1});
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  const double pairs = static_cast<double>(setup.sequences * shape.q_heads) *
                       static_cast<double>(setup.length) * static_cast<double>(setup.length + 1) / 2;
  const double flops = 4 * pairs * static_cast<double>(shape.head_dim);
  const Speed forward = speed_of(
      flops, c.threads, [&] { attention_varlen_forward(c, out_t, lse_t, qkv_t, cu_t, shape, scale); });
  const Speed backward = speed_of(2.5 * flops, c.threads, [&] {
    attention_varlen_backward(c, dqkv_t, dout_t, qkv_t, out_t, lse_t, cu_t, shape, scale);
  });
  std::printf("%-34s %-5s forward %7.1f GFLOP/s (%4.1f %% of peak)  backward %7.1f (%4.1f %%)\n", setup.name,
              dtype, flops / forward.seconds / 1e9, 100 * forward.share / peaks,
              2.5 * flops / backward.seconds / 1e9, 100 * backward.share / peaks);
}

/// Bytes per second of a plain sum over `values`.
double read_rate(const Threads& threads, const std::vector<uint8_t>& values) {
  const int64_t part = static_cast<int64_t>(values.size()) / threads / 1024 * 1024;
  const double seconds = fast_seconds(0.5, [&] {
    parallel_for(threads, threads, [&](int64_t i) {
      sum_pass(reinterpret_cast<const float*>(values.data() + i * part), part / 4);
    });
  });
  return static_cast<double>(part * threads) / seconds;
}

template <class S>
void bench_decode(Ctx& c, const Setup& setup, const char* dtype, int64_t rows, int64_t page_tokens) {
  const AttentionShape& shape = setup.shape;
  const int64_t per_sequence = (setup.length + page_tokens - 1) / page_tokens,
                pages = per_sequence * setup.sequences;
  std::vector<int32_t> table(static_cast<size_t>(pages)), cu, lengths;
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(3));
  for (int64_t s = 0; s <= setup.sequences; ++s) cu.push_back(static_cast<int32_t>(s * rows));
  lengths.assign(static_cast<size_t>(setup.sequences), static_cast<int32_t>(setup.length));
  const int64_t T = rows * setup.sequences, page_size = shape.kv_width() * page_tokens;
  const auto some = normal<S>(page_size, 1);
  std::vector<S> keys, values;
  for (int64_t p = 0; p < pages; ++p) keys.insert(keys.end(), some.begin(), some.end());
  values = keys;
  std::vector<S> qkv = normal<S>(T * shape.qkv_width(), 2), out(static_cast<size_t>(T * shape.q_width()));
  const PagedKv kv{make_tensor(keys.data(), kDTypeOf<S>, {1, pages, page_size}),
                   make_tensor(values.data(), kDTypeOf<S>, {1, pages, page_size}),
                   view_of(table.data(), {setup.sequences, per_sequence}),
                   view_of(lengths.data(), {setup.sequences}), page_tokens};
  const double seconds = fast_seconds(0.5, [&] {
    attention_paged(c, make_tensor(out.data(), kDTypeOf<S>, {T, shape.q_width()}),
                    view_of(qkv.data(), {T, shape.qkv_width()}), kv, 0,
                    view_of(cu.data(), {setup.sequences + 1}), shape,
                    1 / std::sqrt(static_cast<double>(shape.head_dim)));
  });
  const auto bytes = static_cast<double>(kv.keys.bytes() + kv.values.bytes());
  const auto* raw = reinterpret_cast<const uint8_t*>(keys.data());
  const double plain = read_rate(c.threads, std::vector<uint8_t>(raw, raw + kv.keys.bytes()));
  const double flops = 4.0 * static_cast<double>(T * setup.length * shape.q_width());
  std::printf(
      "%-34s %-5s rows %4ld page %3ld: %6.1f GB/s of keys and values (plain read %5.1f), %6.1f GFLOP/s\n",
      setup.name, dtype, static_cast<long>(rows), static_cast<long>(page_tokens), bytes / seconds / 1e9,
      plain / 1e9, flops / seconds / 1e9);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  Backend backend(Device::cpu, argc > 1 ? std::atoi(argv[1]) : 1);
  Ctx& c = backend.ctx();
  const Setup packed[] = {{"14:2 heads of 64, 1 x 4096", {14, 2, 64}, 4096, 1},
                          {"16:8 heads of 128, 4 x 1024", {16, 8, 128}, 1024, 4},
                          {"8:2 heads of 128, 1 x 4096", {8, 2, 128}, 4096, 1},
                          {"4:4 heads of 80, 2 x 2048", {4, 4, 80}, 2048, 2},
                          {"8:2 heads of 64, 64 x 64", {8, 2, 64}, 64, 64}};
  for (const Setup& s : packed) {
    bench_packed<float>(c, s, "fp32", 1);
    bench_packed<bf16>(c, s, "bf16", 1);
  }
  bench_packed<double>(c, packed[2], "fp64", 0.5);
  const Setup decode[] = {{"14:2 heads of 64, 64 x 4096", {14, 2, 64}, 4096, 64},
                          {"16:8 heads of 128, 32 x 2048", {16, 8, 128}, 2048, 32},
                          {"8:8 heads of 128, 32 x 2048", {8, 8, 128}, 2048, 32}};
  for (const Setup& s : decode)
    for (const int64_t page_tokens : {16, 64}) {
      bench_decode<float>(c, s, "fp32", 1, page_tokens);
      bench_decode<bf16>(c, s, "bf16", 1, page_tokens);
    }
  bench_decode<float>(c, {"14:2 heads of 64, 1 x 4096", {14, 2, 64}, 4096, 1}, "fp32", 256, 16);
  bench_decode<bf16>(c, {"14:2 heads of 64, 1 x 4096", {14, 2, 64}, 4096, 1}, "bf16", 256, 16);
  return 0;
}
