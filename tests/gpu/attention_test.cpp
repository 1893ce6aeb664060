// Attention on the GPU: against fp64, and bit for bit between packed sequences and pages, for any cut into
// chunks, page size and order, free pages full of NaN.

#include "src/ops/attention.h"

#include <numeric>

#include "tests/gpu/cudnn_attention.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

struct Case {
  AttentionShape shape;
  DType dtype = DType::bf16;
  int64_t page_tokens = 64;
};

/// A packed batch on the GPU and its attention.
class Packed {
 public:
  Packed(Ctx& c, const Case& what, const std::vector<int32_t>& lengths, double spread = 1.0)
      : c_(c), what_(what), lengths_(lengths) {
    for (int32_t n : lengths) cu_.push_back(cu_.back() + n);
    qkv_ = c.scratch.make({cu_.back(), what.shape.qkv_width()}, what.dtype);
    out_ = c.scratch.make({cu_.back(), what.shape.q_width()}, what.dtype);
    lse_ = c.scratch.make({what.shape.q_heads, cu_.back()}, DType::f32);
    NormalBlock().fill(c.device, qkv_, spread, 0, 1);
    device::fill(c.lane, out_.raw(), 0xff, out_.bytes());
    attention_varlen_forward(c, out_, lse_, qkv_, ints(cu_), what.shape, scale());
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(what_.shape.head_dim)); }
  CTensor ints(const std::vector<int32_t>& v) const {
    return to_device(c_, view_of(v.data(), {static_cast<int64_t>(v.size())}));
  }
  const std::vector<int32_t>& cu() const { return cu_; }
  const std::vector<int32_t>& lengths() const { return lengths_; }
  const Tensor& qkv() const { return qkv_; }
  const Tensor& out() const { return out_; }
  const Tensor& lse() const { return lse_; }
  const Case& what() const { return what_; }
  Ctx& ctx() const { return c_; }

 private:
  Ctx& c_;
  Case what_;
  std::vector<int32_t> lengths_, cu_{0};
  Tensor qkv_, out_, lse_;
};

/// Scrambled pages filled with NaN; page 0 belongs to nobody.
class Pages {
 public:
  explicit Pages(const Packed& batch) : batch_(batch) {
    const int64_t page = batch.what().page_tokens;
    for (int32_t n : batch.lengths()) {
      first_.push_back(total_);
      total_ += (n + page - 1) / page;
      most_ = std::max<int64_t>(most_, (n + page - 1) / page);
    }
    Ctx& c = batch.ctx();
    const int64_t width = batch.what().shape.kv_width() * page;
    keys_ = c.scratch.make({2, total_ + 1, width}, batch.what().dtype);
    values_ = c.scratch.like(keys_);
    device::fill(c.lane, keys_.raw(), 0xff, keys_.bytes());
    device::fill(c.lane, values_.raw(), 0xff, values_.bytes());
  }

  /// Rows [begin[s], end[s]) of every sequence s: appended, and their attention compared with the packed one.
  /// Returns the number of compared values.
  int64_t advance(const std::vector<int32_t>& begin, const std::vector<int32_t>& end) {
    Ctx& c = batch_.ctx();
    ArenaScope scope(c.scratch);
    std::vector<int32_t> cu{0}, lengths, table, index;
    for (size_t s = 0; s < begin.size(); ++s) {
      if (begin[s] == end[s]) continue;
      for (int32_t i = begin[s]; i < end[s]; ++i) index.push_back(batch_.cu()[s] + i);
      cu.push_back(static_cast<int32_t>(index.size()));
      lengths.push_back(end[s]);
      const int64_t used = (end[s] + batch_.what().page_tokens - 1) / batch_.what().page_tokens;
      for (int64_t p = 0; p < most_; ++p) table.push_back(p < used ? page_of(s, p) : 0);
    }
    const auto S = static_cast<int64_t>(lengths.size()), T = static_cast<int64_t>(index.size());
    const AttentionShape& shape = batch_.what().shape;
    const PagedKv kv{keys_, values_, to_device(c, view_of(table.data(), {S, most_})), batch_.ints(lengths),
                     batch_.what().page_tokens};
    Tensor qkv = c.scratch.make({T, shape.qkv_width()}, batch_.what().dtype),
           out = c.scratch.make({T, shape.q_width()}, batch_.what().dtype);
    gather(qkv, batch_.qkv(), index);
    device::fill(c.lane, out.raw(), 0xff, out.bytes());
    append_kv(c, kv, 1, qkv, batch_.ints(cu), shape);
    attention_paged(c, out, qkv, kv, 1, batch_.ints(cu), shape, batch_.scale());
    Tensor want = c.scratch.like(out);
    gather(want, batch_.out(), index);
    std::vector<char> a(static_cast<size_t>(out.bytes())), b(a.size());
    device::copy_from_device(c.lane, a.data(), out.data, out.bytes());
    device::copy_from_device(c.lane, b.data(), want.data, want.bytes());
    EXPECT_EQ(a, b) << S << " sequences, " << T << " rows";
    return out.size();
  }

 private:
  int32_t page_of(size_t s, int64_t p) const {
    const int64_t at = first_[s] + p;  // an odd stride that visits every page once
    int64_t stride = 7919;
    while (std::gcd(stride, total_) != 1) ++stride;
    return static_cast<int32_t>(1 + at * stride % total_);
  }
  void gather(const Tensor& to, const Tensor& from, const std::vector<int32_t>& index) const {
    const int64_t bytes = to.dim(1) * dtype_size(to.dtype);
    for (size_t i = 0; i < index.size();) {
      size_t n = 1;
      while (i + n < index.size() && index[i + n] == index[i] + static_cast<int32_t>(n)) ++n;
      device::copy(batch_.ctx().lane, static_cast<char*>(to.raw()) + static_cast<int64_t>(i) * bytes,
                   static_cast<const char*>(from.data) + index[i] * bytes, bytes * static_cast<int64_t>(n));
      i += n;
    }
  }

  const Packed& batch_;
  std::vector<int64_t> first_;
  int64_t total_ = 0, most_ = 0;
  Tensor keys_, values_;  // [2, pages, Hkv * page * dh]
};

const std::vector<Case> kCases{{{32, 8, 128}},
                               {{32, 8, 128}, DType::bf16, 16},
                               {{16, 8, 128}, DType::bf16, 32},
                               {{8, 1, 128}, DType::bf16, 128},
                               {{14, 2, 64}},
                               {{4, 4, 64}, DType::bf16, 16},
                               {{32, 2, 128}},  // a group of 16: no decode kernel
                               {{4, 2, 16}, DType::bf16, 16},
                               {{3, 1, 80}, DType::bf16, 16},
                               {{4, 2, 64}, DType::f32, 16}};

/// Every chunking: one token at a time, random cuts, whole prompts; decode rows and chunks in one call.
TEST(GpuAttention, PagesGiveTheBitsOfPackedSequences) {
  int64_t compared = 0;
  for (const Case& what : kCases)
    for (double spread : {1.0, 6.0}) {
      Backend gpu(Device::cuda);
      const bool plain = what.dtype == DType::f32 || what.shape.head_dim % 64 != 0;
      std::vector<int32_t> lengths{1, 2, 63, 64, 65, 127, 128, 129, 500, 1023, 1024, 1025, 1100};
      if (!plain) lengths.insert(lengths.end(), {2047, 2048, 2049, 3000, 5000});
      const Packed batch(gpu.ctx(), what, lengths, spread);
      {
        ArenaScope scope(gpu.ctx().scratch);
        Pages pages(batch);
        std::vector<int32_t> begin(lengths.size(), 0), end;
        for (uint64_t step = 0; begin != lengths; ++step, begin = end) {
          end = begin;
          const std::vector<int32_t> cuts = random_ids(static_cast<int64_t>(lengths.size()), 777, 50 + step);
          for (size_t s = 0; s < lengths.size(); ++s) {
            const int32_t rows = (step + s) % 3 == 0 ? 1 : cuts[s];
            end[s] = std::min(lengths[s], begin[s] + rows);
          }
          compared += pages.advance(begin, end);
        }
      }
      ArenaScope scope(gpu.ctx().scratch);
      Pages pages(batch);  // whole prompts but the last token, then that
      std::vector<int32_t> last;
      for (int32_t n : lengths) last.push_back(n - 1);
      compared += pages.advance(std::vector<int32_t>(lengths.size(), 0), last);
      compared += pages.advance(last, lengths);
    }
  std::printf("attention: 0 of %ld values differ\n", compared);
}

/// Batches of decode rows: 1, and more than there are multiprocessors.
TEST(GpuAttention, DecodeBatches) {
  int64_t compared = 0;
  for (int64_t head_dim : {64, 128})
    for (int64_t sequences : {1, 3, 40, 256}) {
      Backend gpu(Device::cuda);
      std::vector<int32_t> lengths, last;
      for (int64_t s = 0; s < sequences; ++s)
        lengths.push_back(static_cast<int32_t>(1 + (s * 797 + 1500) % 2600));
      for (int32_t n : lengths) last.push_back(n - 1);
      const Packed batch(gpu.ctx(), {{8, 2, head_dim}}, lengths);
      Pages pages(batch);
      compared += pages.advance(std::vector<int32_t>(lengths.size(), 0), last);
      compared += pages.advance(last, lengths);
    }
  std::printf("decode: 0 of %ld values differ\n", compared);
}

/// Neighbours full of NaN do not show.
TEST(GpuAttention, NeighboursDoNotMatter) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const Case what{{8, 2, 128}};
  const std::vector<int32_t> lengths{200, 1300, 77};
  const Packed clean(c, what, lengths);
  const int64_t row = what.shape.qkv_width() * 2, out_row = what.shape.q_width() * 2;
  const Tensor qkv = c.scratch.like(clean.qkv()), out = c.scratch.like(clean.out()),
               lse = c.scratch.like(clean.lse());
  device::fill(c.lane, qkv.raw(), 0xff, qkv.bytes());
  device::copy(c.lane, static_cast<char*>(qkv.raw()) + 200 * row,
               static_cast<const char*>(clean.qkv().data) + 200 * row, 1300 * row);
  attention_varlen_forward(c, out, lse, qkv, clean.ints(clean.cu()), what.shape, clean.scale());
  const std::vector<bf16> got = to_host<bf16>(c, rows(CTensor(out), 200, 1500)),
                          want = to_host<bf16>(c, rows(CTensor(clean.out()), 200, 1500));
  EXPECT_EQ(std::memcmp(got.data(), want.data(), static_cast<size_t>(1300 * out_row)), 0);
}

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
    const Case what{shape};
    for (const std::vector<int32_t>& lengths :
         {std::vector<int32_t>{16384}, {8192, 8192}, {1, 5000, 8191, 129, 12345, 4097}}) {
      ArenaScope scope(c.scratch);
      const Packed ours(c, what, lengths, 2.0);
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

TEST(GpuAttention, AgreesWithFp64) {
  for (const AttentionShape shape : {AttentionShape{4, 2, 64}, {4, 1, 128}, {2, 2, 24}}) {
    const std::vector<int32_t> cu{0, 1, 70, 199, 1500};
    const int64_t T = cu.back(), W = shape.qkv_width();
    check_devices(
        fmt::format("attention, heads of {}", shape.head_dim), {normal_values(T * W, 1, 1.5)},
        [&](Ctx& c, DType dtype, const Many& in) {
          ArenaScope scope(c.scratch);
          TensorOn qkv(c, in[0], dtype, {T, W}), out(c, dtype, {T, shape.q_width()}),
              lse(c, accumulate_dtype(dtype), {shape.q_heads, T}),
              ends(c, cu, {static_cast<int64_t>(cu.size())});
          attention_varlen_forward(c, out, lse, qkv, ends, shape,
                                   1 / std::sqrt(static_cast<double>(shape.head_dim)));
          return Many{out.values(), lse.values()};
        },
        4e-6, 1e-2);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
