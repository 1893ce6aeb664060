// Attention over pages against attention over packed sequences, bit for bit: any cut into chunks, page size
// and order, free pages full of NaN; and both against fp64.

#include <numeric>

#include "tests/ops/packed_attention.h"

namespace temper {
namespace {

constexpr bool kGpu = kTestDevice == Device::cuda;

/// Scrambled pages filled with NaN; page 0 belongs to nobody.
class Pages {
 public:
  explicit Pages(const PackedAttention& batch) : batch_(batch) {
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
    const TestTensor places(c, table, {S, most_}), filled(c, lengths, {S}), ends(c, cu, {S + 1});
    const PagedKv kv{keys_, values_, places, filled, batch_.what().page_tokens};
    Tensor qkv = c.scratch.make({T, shape.qkv_width()}, batch_.what().dtype),
           out = c.scratch.make({T, shape.q_width()}, batch_.what().dtype);
    gather(qkv, batch_.qkv(), index);
    device::fill(c.lane, out.raw(), 0xff, out.bytes());
    append_kv(c, kv, 1, qkv, ends, shape);
    const int64_t size = dtype_size(qkv.dtype);  // keys and values must come from the pages
    device::fill_rows(c.lane, static_cast<char*>(qkv.raw()) + shape.q_width() * size, 0xff,
                      2 * shape.kv_width() * size, T, shape.qkv_width() * size);
    attention_paged(c, out, qkv, kv, 1, ends, shape, batch_.scale());
    Tensor want = c.scratch.like(out);
    gather(want, batch_.out(), index);
    EXPECT_EQ(first_difference(bytes_of(c, out), bytes_of(c, want), shape.q_width() * size), "")
        << S << " sequences, " << T << " rows, heads " << shape.q_heads << "/" << shape.kv_heads << " of "
        << shape.head_dim << ", pages of " << batch_.what().page_tokens << ", the last ends at "
        << lengths.back();
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
    Ctx& c = batch_.ctx();
    const int64_t bytes = to.dim(1) * dtype_size(to.dtype);
    for (size_t i = 0; i < index.size();) {
      size_t n = 1;
      while (i + n < index.size() && index[i + n] == index[i] + static_cast<int32_t>(n)) ++n;
      device::copy(c.lane, static_cast<char*>(to.raw()) + static_cast<int64_t>(i) * bytes,
                   static_cast<const char*>(from.data) + index[i] * bytes, bytes * static_cast<int64_t>(n));
      i += n;
    }
  }

  const PackedAttention& batch_;
  std::vector<int64_t> first_;
  int64_t total_ = 0, most_ = 0;
  Tensor keys_, values_;  // [2, pages, Hkv * page * dh]
};

/// On a GPU what each of its kernels serves; on the CPU head counts and widths of every kind.
const std::vector<AttentionCase> kCases =
    kGpu ? std::vector<AttentionCase>{{{32, 8, 128}},
                                      {{32, 8, 128}, DType::bf16, 16},
                                      {{16, 8, 128}, DType::bf16, 32},
                                      {{8, 1, 128}, DType::bf16, 128},
                                      {{14, 2, 64}},
                                      {{4, 4, 64}, DType::bf16, 16},
                                      {{32, 2, 128}},  // a group of 16: no decode kernel
                                      {{16, 2, 256}, DType::bf16, 16},
                                      {{16, 4, 256}},
                                      {{6, 1, 256}, DType::bf16, 32},
                                      {{2, 2, 256}, DType::bf16, 128},
                                      {{16, 1, 256}},
                                      {{4, 2, 16}, DType::bf16, 16},
                                      {{3, 1, 80}, DType::bf16, 16},
                                      {{4, 2, 64}, DType::f32, 16}}
         : std::vector<AttentionCase>{{{4, 2, 64}, DType::f32, 32},  {{7, 1, 64}, DType::bf16, 32},
                                      {{4, 4, 24}, DType::bf16, 16}, {{3, 1, 80}, DType::bf16, 48},
                                      {{4, 1, 8}, DType::f64, 32},   {{4, 2, 100}, DType::bf16, 16},
                                      {{2, 1, 4}, DType::f32, 16}};

/// Random cuts, whole prompts; decode rows, chunks and waiting sequences in one call.
TEST(AttentionPaged, PagesGiveTheBitsOfPackedSequences) {
  int64_t compared = 0, run = 0;
  for (const AttentionCase& what : kCases)
    for (double spread : {1.0, 6.0}) {
      TestCtx ctx(static_cast<int>(1 + run++ % 2));
      Ctx& c = ctx;
      const bool plain = what.dtype != DType::bf16 || what.shape.head_dim % 64 != 0;
      std::vector<int32_t> lengths{1, 2, 63, 64, 65, 127, 128, 129, 500, 1023, 1024, 1025, 1100};
      if (kGpu && !plain) lengths.insert(lengths.end(), {15, 16, 17, 2047, 2048, 2049, 3000, 5000});
      if (!kGpu) lengths = {1, 40, 127, 128, 129, 1025, 2100};
      const PackedAttention batch(c, what, lengths, spread);
      {
        ArenaScope scope(c.scratch);
        Pages pages(batch);
        std::vector<int32_t> begin(lengths.size(), 0), end;
        for (uint64_t step = 0; begin != lengths; ++step, begin = end) {
          end = begin;
          const std::vector<int32_t> cuts = random_ids(static_cast<int64_t>(lengths.size()), 777, 50 + step);
          for (size_t s = 0; s < lengths.size(); ++s) {
            const int32_t rows = (step + s) % 3 == 0 ? 1 : (step + s) % 7 == 5 ? 0 : cuts[s];
            end[s] = std::min(lengths[s], begin[s] + rows);
          }
          if (begin != end) compared += pages.advance(begin, end);
        }
      }
      ArenaScope scope(c.scratch);
      Pages pages(batch);  // whole prompts but the last token, then that
      std::vector<int32_t> last;
      for (int32_t n : lengths) last.push_back(n - 1);
      compared += pages.advance(std::vector<int32_t>(lengths.size(), 0), last);
      compared += pages.advance(last, lengths);
    }
  std::printf("attention: 0 of %ld values differ\n", compared);
}

/// One sequence in chunks of one size: token by token up to more than a split.
TEST(AttentionPaged, ChunksOfEverySize) {
  struct Long {
    AttentionCase what;
    int32_t length;
  };
  const std::vector<Long> list =
      kGpu ? std::vector<Long>{{{{8, 2, 128}}, 1100}, {{{4, 1, 64}}, 1100}, {{{4, 1, 256}}, 1100}}
           : std::vector<Long>{{{{7, 1, 64}, DType::f32}, 4500},  {{{4, 1, 64}, DType::bf16}, 4500},
                               {{{1, 1, 16}, DType::f64}, 4500},  {{{2, 2, 24}, DType::f32}, 1100},
                               {{{7, 1, 8}, DType::bf16}, 1100},  {{{2, 1, 80}, DType::bf16}, 1100},
                               {{{3, 3, 256}, DType::bf16}, 300}, {{{70, 1, 16}, DType::bf16}, 300}};
  const std::vector<int64_t> page_sizes =
      kGpu ? std::vector<int64_t>{16, 32, 64, 128} : std::vector<int64_t>{16, 48, 256, 128};
  size_t turn = 0;
  for (auto [what, length] : list) {
    for (int32_t chunk : {1, 7, 64, 1000}) {
      TestCtx ctx;
      what.page_tokens = page_sizes[turn++ % 4];
      const PackedAttention batch(ctx, what, {length});
      Pages pages(batch);
      for (int32_t at = 0; at < length; at += chunk) pages.advance({at}, {std::min(at + chunk, length)});
    }
    ++turn;  // every chunk meets every page size
  }
}

/// Batches of decode rows: 1, and more than a GPU has multiprocessors.
TEST(AttentionPaged, DecodeBatches) {
  const std::vector<int64_t> batches =
      kGpu ? std::vector<int64_t>{1, 3, 40, 256} : std::vector<int64_t>{1, 3};
  int64_t compared = 0;
  for (int64_t head_dim : kGpu ? std::vector<int64_t>{64, 128, 256} : std::vector<int64_t>{64, 128})
    for (int64_t sequences : batches) {
      TestCtx ctx(2);
      std::vector<int32_t> lengths, last;
      for (int64_t s = 0; s < sequences; ++s)
        lengths.push_back(static_cast<int32_t>(1 + (s * 797 + 1500) % 2600));
      for (int32_t n : lengths) last.push_back(n - 1);
      const PackedAttention batch(ctx, {{8, 2, head_dim}}, lengths);
      Pages pages(batch);
      compared += pages.advance(std::vector<int32_t>(lengths.size(), 0), last);
      compared += pages.advance(last, lengths);
    }
  std::printf("decode: 0 of %ld values differ\n", compared);
}

/// Neighbours full of NaN do not show.
TEST(AttentionPacked, NeighboursDoNotMatter) {
  for (int64_t head_dim : kGpu ? std::vector<int64_t>{128, 256} : std::vector<int64_t>{128}) {
    TestCtx ctx;
    Ctx& c = ctx;
    const AttentionCase what{{8, 2, head_dim}};
    const PackedAttention clean(c, what, {200, 1300, 77});
    const int64_t row = what.shape.qkv_width() * 2;
    const Tensor qkv = c.scratch.like(clean.qkv()), out = c.scratch.like(clean.out()),
                 lse = c.scratch.like(clean.lse());
    device::fill(c.lane, qkv.raw(), 0xff, qkv.bytes());
    device::copy(c.lane, static_cast<char*>(qkv.raw()) + 200 * row,
                 static_cast<const char*>(clean.qkv().data) + 200 * row, 1300 * row);
    attention_varlen_forward(c, out, lse, qkv, clean.ends(), what.shape, clean.scale());
    EXPECT_EQ(first_difference(bytes_of(c, rows(CTensor(out), 200, 1500)),
                               bytes_of(c, rows(CTensor(clean.out()), 200, 1500)), 2 * what.shape.q_width()),
              "")
        << "heads of " << head_dim;
  }
}

TEST(AttentionPacked, AgreesWithFp64) {
  for (const AttentionShape shape : {AttentionShape{4, 2, 64}, {4, 1, 128}, {2, 2, 24}, {4, 1, 256}}) {
    if (!kGpu && shape.head_dim == 256) continue;
    const std::vector<int32_t> cu{0, 1, 70, 199, 1500};
    const int64_t T = cu.back(), W = shape.qkv_width();
    check_dtypes(
        fmt::format("attention, heads of {}", shape.head_dim), {normal_values(T * W, 1, 1.5)},
        [&](Ctx& c, DType dtype, const Many& in) {
          TestTensor qkv(c, in[0], dtype, {T, W}), out(c, dtype, {T, shape.q_width()}),
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

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
