// Attention over pages against attention over packed sequences, bit for bit: any cut into chunks, page size
// and order, free pages full of NaN; and both against fp64.

#include "tests/ops/paged_attention.h"

namespace temper {
namespace {

constexpr bool kGpu = kTestDevice == Device::cuda;

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

/// A few rows of some sequences, across the border of a split and from the first on, beside ones that decode
/// and one that waits: a GPU's decode kernel takes all of them.
TEST(AttentionPaged, FewRowsBesideDecodingSequences) {
  const std::vector<int64_t> groups = kGpu ? std::vector<int64_t>{1, 2, 3, 4, 5, 8} : std::vector<int64_t>{3};
  int64_t compared = 0;
  for (int64_t head_dim : kGpu ? std::vector<int64_t>{64, 128, 256} : std::vector<int64_t>{64})
    for (int64_t group : groups)
      for (int32_t sequences : {5, 40}) {
        TestCtx ctx(2);
        std::vector<int32_t> begin, end;
        for (int32_t s = 0; s < sequences; ++s) {
          begin.push_back((s * 797 + 1500) % 2600);
          end.push_back(begin.back() + 1);
        }
        begin[1] = 1021, end[1] = 1027;
        begin[2] = 0, end[2] = 9;
        begin[3] = 2047, end[3] = 2049;
        end[4] = begin[4];
        const PackedAttention batch(ctx, {{2 * group, 2, head_dim}}, end);
        Pages pages(batch);
        compared += pages.advance(std::vector<int32_t>(begin.size(), 0), begin);
        compared += pages.advance(begin, end);
      }
  std::printf("few rows: 0 of %ld values differ\n", compared);
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
