// Attention on the GPU against a second opinion; tests/ops/attention_paged_test.cpp has what every backend is
// asked.

#include "kernels/cuda/attention_trial.h"
#include "tests/gpu/cudnn_attention.h"
#include "tests/ops/paged_attention.h"

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

/// Heads of 256, which that kernel does not take: the plain kernel in fp32, from the same values, is the
/// second opinion.
void expect_like_plain(Ctx& c, const AttentionShape& shape, const std::vector<int32_t>& lengths) {
  const ArenaScope scope(c.scratch);
  const PackedAttention ours(c, {shape}, lengths, 2.0);
  const int64_t rows = ours.cu().back();
  const TestTensor qkv(c, decode(bytes_of(c, ours.qkv()), DType::bf16), DType::f32,
                       {rows, shape.qkv_width()}),
      out(c, DType::f32, {rows, shape.q_width()}), lse(c, DType::f32, {shape.q_heads, rows});
  attention_varlen_forward(c, out, lse, qkv, ours.ends(), shape, ours.scale());
  const Values got = decode(bytes_of(c, ours.out()), DType::bf16), want = out.values();
  const Distance o = distance(got, want), l = distance(to_host<float>(c, ours.lse()), to_host<float>(c, lse));
  std::printf("heads %ld/%ld of 256, %d and more rows: out %.1e (most %.1e), lse %.1e (%.1e)\n",
              shape.q_heads, shape.kv_heads, lengths[0], o.relative, o.most, l.relative, l.most);
  EXPECT_LE(o.relative, 5e-3);
  EXPECT_LE(o.most, 6e-2);
  EXPECT_LE(l.most, 2e-4);
  if (o.relative <= 5e-3) return;
  size_t bad = 0;
  while (bad + 1 < got.size() && std::abs(got[bad] - want[bad]) <= 6e-2) ++bad;
  const auto at = static_cast<int64_t>(bad);
  std::printf("  first bad: row %ld, head %ld, column %ld: %g instead of %g\n", at / shape.q_width(),
              at % shape.q_width() / 256, at % 256, got[bad], want[bad]);
}

TEST(GpuAttention, HeadsOf256AgreeWithThePlainKernel) {
  Backend gpu(Device::cuda);
  for (const AttentionShape& shape :
       {AttentionShape{16, 4, 256}, {16, 2, 256}, {6, 1, 256}, {2, 2, 256}, {16, 1, 256}})
    for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{1},
                                                {16, 15},
                                                {64, 63, 65},
                                                {128, 127, 129},
                                                {1024, 1, 1023, 1025},
                                                {5000, 77}})
      expect_like_plain(gpu.ctx(), shape, lengths);
}

/// Prompts, chunks that end anywhere, and rows one by one: the bits of the packed rows. Returns how many
/// values were compared.
int64_t expect_packed_bits_over_pages(const AttentionCase& what, const std::vector<int32_t>& lengths) {
  TestCtx gpu(1, Device::cuda);
  const PackedAttention batch(gpu, what, lengths, 3.0);
  int64_t compared = 0;
  Pages pages(batch);
  std::vector<int32_t> begin(lengths.size(), 0);
  for (const int32_t rows : {0, 1, 63, 200, 1, 1000, 1, 5000}) {
    std::vector<int32_t> end;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int32_t last = rows == 1 ? lengths[s] : lengths[s] - 1;  // the last row comes alone
      end.push_back(std::max(begin[s], std::min(last, begin[s] + (s % 5 == 4 ? 1 : rows))));
    }
    if (begin != end) compared += pages.advance(begin, end);
    begin = end;
  }
  std::vector<int32_t> all_but_one;
  for (const int32_t n : lengths) all_but_one.push_back(n - 1);
  Pages whole(batch);
  compared += whole.advance(std::vector<int32_t>(lengths.size(), 0), all_but_one);
  compared += whole.advance(all_but_one, lengths);
  return compared;
}

TEST(GpuAttention, HeadsOf256HaveTheSameBitsOverPages) {
  int64_t compared = 0;
  for (const AttentionCase& what : {AttentionCase{{16, 2, 256}},
                                    {{16, 4, 256}, DType::bf16, 16},
                                    {{6, 1, 256}, DType::bf16, 32},
                                    {{2, 2, 256}, DType::bf16, 16},
                                    {{16, 1, 256}}})
    compared += expect_packed_bits_over_pages(
        what, {1, 15, 16, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2050, 5000});
  std::printf("heads of 256 over pages: %ld values compared\n", compared);
}

/// What a run does before it uses the decode kernel for heads: it passes, and one that does nothing does not.
TEST(GpuAttention, TheSelfTestFindsOtherBits) {
  Backend gpu(Device::cuda);
  auto& libraries = static_cast<cuda::Libraries&>(*gpu.ctx().lane.libraries());
  for (const AttentionShape& shape :
       {AttentionShape{32, 8, 128}, {14, 2, 64}, {16, 4, 256}, {16, 2, 256}, {2, 2, 256}, {8, 1, 256}})
    for (const int64_t page_tokens : {16, 32, 64})
      EXPECT_TRUE(cuda::has_bits_of_prefill(libraries, shape, page_tokens))
          << shape.q_heads << "/" << shape.kv_heads << " of " << shape.head_dim;
  EXPECT_FALSE(
      cuda::has_bits_of_prefill(libraries, {16, 4, 256}, 64, [](Ctx&, const cuda::AttentionCall&) {}));
}

/// What the sanitizers run (tools/sanitize_gpu.sh): every kernel of these heads on few rows.
TEST(GpuAttention, FewRowsOfHeadsOf256) {
  Backend gpu(Device::cuda);
  expect_like_plain(gpu.ctx(), {4, 1, 256}, {65, 1, 130});
  expect_packed_bits_over_pages({{4, 1, 256}, DType::bf16, 16}, {1, 65, 130});
}

/// Rows of a packed batch on the GPU and their gradients.
struct GradientCase {
  AttentionCase what;
  Tensor qkv, dout;

  GradientCase(Ctx& c, const AttentionCase& heads, int64_t rows) : what(heads) {
    const NormalBlock block;
    qkv = c.scratch.make({rows, what.shape.qkv_width()}, what.dtype);
    dout = c.scratch.make({rows, what.shape.q_width()}, what.dtype);
    block.fill(c.device, qkv, 1.5, 0, 3);
    block.fill(c.device, dout, 1, 0, 4);
  }
  /// Bytes of dqkv of the sequences with these ends, of rows [first, first + ends.back()); outputs and
  /// workspace hold NaN before.
  std::vector<char> run(Ctx& c, int64_t first, const std::vector<int32_t>& ends) const {
    const ArenaScope scope(c.scratch);
    const int64_t end = first + ends.back();
    const CTensor x = rows(CTensor(qkv), first, end), dy = rows(CTensor(dout), first, end);
    const Tensor out = c.scratch.like(dy), dqkv = c.scratch.like(x),
                 lse = c.scratch.make({what.shape.q_heads, ends.back()}, DType::f32),
                 cu = c.scratch.make({static_cast<int64_t>(ends.size())}, DType::i32);
    device::copy_to_device(c.lane, cu.raw(), ends.data(), cu.bytes());
    device::fill(c.lane, dqkv.raw(), 0xff, dqkv.bytes());
    {
      const ArenaScope workspace(c.scratch);
      const int64_t bytes = 16 * dqkv.bytes();
      device::fill(c.lane, c.scratch.allocate(bytes), 0xff, bytes);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(what.shape.head_dim));
    attention_varlen_forward(c, out, lse, x, cu, what.shape, scale);
    attention_varlen_backward(c, dqkv, dy, x, out, lse, cu, what.shape, scale);
    return bytes_of(c, dqkv);
  }
  std::vector<char> cut(const std::vector<char>& dqkv, int64_t begin, int64_t end) const {
    const int64_t row = what.shape.qkv_width() * dtype_size(what.dtype);
    return {dqkv.begin() + begin * row, dqkv.begin() + end * row};
  }
};

std::vector<int32_t> ends_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> ends{0};
  for (int32_t n : lengths) ends.push_back(ends.back() + n);
  return ends;
}

const std::vector<AttentionCase> kGradientCases = {{{32, 8, 128}},
                                                   {{16, 2, 128}},
                                                   {{16, 1, 128}},
                                                   {{4, 4, 128}},
                                                   {{14, 2, 64}},
                                                   {{16, 1, 64}},
                                                   {{16, 2, 256}},
                                                   {{16, 4, 256}},
                                                   {{6, 1, 256}},
                                                   {{2, 2, 256}},
                                                   {{8, 2, 80}, DType::bf16},
                                                   {{4, 2, 128}, DType::f32}};
const std::vector<int32_t> kGradientLengths = {1,   5000, 63,  64,  65,   127, 0,    128,  129, 191,
                                               192, 300,  511, 513, 1000, 255, 2049, 3001, 2,   700};

TEST(GpuAttentionBackward, RepeatsAndNeighboursDoNotShow) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const std::vector<int32_t> ends = ends_of(kGradientLengths);
  for (const AttentionCase& what : kGradientCases) {
    const ArenaScope scope(c.scratch);
    const std::string name = fmt::format("heads {}/{} of {}, {}", what.shape.q_heads, what.shape.kv_heads,
                                         what.shape.head_dim, dtype_name(what.dtype));
    const int64_t width = what.shape.qkv_width() * dtype_size(what.dtype);
    const GradientCase batch(c, what, ends.back());
    const std::vector<char> packed = batch.run(c, 0, ends);
    for (int repeat = 0; repeat < 3; ++repeat)
      EXPECT_EQ(first_difference(batch.run(c, 0, ends), packed, width), "") << name << ", repeat " << repeat;
    for (size_t s = 0; s + 1 < ends.size(); ++s)
      EXPECT_EQ(first_difference(batch.run(c, ends[s], {0, ends[s + 1] - ends[s]}),
                                 batch.cut(packed, ends[s], ends[s + 1]), width),
                "")
          << name << ", sequence " << s << " alone";
    for (size_t s = 0; s + 1 < ends.size(); s += 2)
      for (const Tensor& t : {rows(batch.qkv, ends[s], ends[s + 1]), rows(batch.dout, ends[s], ends[s + 1])})
        device::fill(c.lane, t.raw(), 0xff, t.bytes());
    const std::vector<char> beside = batch.run(c, 0, ends);
    for (size_t s = 1; s + 1 < ends.size(); s += 2)
      EXPECT_EQ(first_difference(batch.cut(beside, ends[s], ends[s + 1]),
                                 batch.cut(packed, ends[s], ends[s + 1]), width),
                "")
          << name << ", sequence " << s << " beside NaN";
  }
}

/// Sequences that are too long for the CPU: the plain kernel in fp32, from the same values, is the second
/// opinion. Between the results lie the roundings to bf16 of out, P, dS and of the gradients themselves.
TEST(GpuAttentionBackward, LongSequencesAgreeWithThePlainKernel) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const std::vector<int32_t> ends = ends_of({5000, 77, 3000, 1});
  for (const AttentionShape& shape : {AttentionShape{8, 2, 128},
                                      {7, 1, 64},
                                      {16, 1, 128},
                                      {16, 4, 256},
                                      {8, 1, 256},
                                      {6, 1, 256},
                                      {2, 2, 256}}) {
    const ArenaScope scope(c.scratch);
    const GradientCase ours(c, {shape}, ends.back());
    GradientCase plain(c, {shape, DType::f32}, ends.back());
    const TestTensor qkv(c, decode(bytes_of(c, ours.qkv), DType::bf16), DType::f32,
                         {ends.back(), shape.qkv_width()}),
        dout(c, decode(bytes_of(c, ours.dout), DType::bf16), DType::f32, {ends.back(), shape.q_width()});
    plain.qkv = qkv, plain.dout = dout;
    const Values got = decode(ours.run(c, 0, ends), DType::bf16),
                 want = decode(plain.run(c, 0, ends), DType::f32);
    const int64_t parts[] = {0, shape.q_width(), shape.q_width() + shape.kv_width(), shape.qkv_width()};
    for (int part = 0; part < 3; ++part) {
      Values a, b;
      for (int64_t t = 0; t < ends.back(); ++t)
        for (int64_t i = t * shape.qkv_width() + parts[part]; i < t * shape.qkv_width() + parts[part + 1];
             ++i) {
          a.push_back(got[static_cast<size_t>(i)]);
          b.push_back(want[static_cast<size_t>(i)]);
        }
      const Distance d = distance(a, b);
      std::printf("d%s, heads %ld/%ld of %ld: %.1e (most %.1e)\n",
                  part == 0   ? "q"
                  : part == 1 ? "k"
                              : "v",
                  shape.q_heads, shape.kv_heads, shape.head_dim, d.relative, d.most);
      EXPECT_LE(d.relative, 6e-3);
      if (d.relative <= 6e-3) continue;
      const double most = 0.1 * std::abs(*std::max_element(b.begin(), b.end()));
      size_t bad = 0;
      while (bad + 1 < a.size() && std::abs(a[bad] - b[bad]) <= most) ++bad;
      const int64_t at = static_cast<int64_t>(bad), wide = parts[part + 1] - parts[part];
      std::printf("  first bad: row %ld, head %ld, column %ld: %g instead of %g\n", at / wide,
                  at % wide / shape.head_dim, at % shape.head_dim, a[bad], b[bad]);
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
