// The gated delta rule on the GPU, by bits: 500 random batches, packed and over pages, in pieces and row by
// row, with forks, against the plain kernel. Free slots, tails that nobody has and rows behind the batch are
// NaN; some rows are -0, underflow, are huge, or forget everything.

#include <random>

#include "kernels/cuda/hybrid/delta_trial.h"
#include "src/ops/hybrid/delta.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

using Numbers = std::vector<int32_t>;
using Random = std::mt19937_64;

int64_t draw(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

/// Rows on the host, packed.
struct HostRows {
  std::vector<bf16> qkv;
  std::vector<float> beta, g;

  void append(const HostRows& from, int64_t begin, int64_t end, const DeltaShape& s) {
    const auto add = [&](auto& to, const auto& all, int64_t width) {
      to.insert(to.end(), all.begin() + begin * width, all.begin() + end * width);
    };
    add(qkv, from.qkv, s.qkv_width());
    add(beta, from.beta, s.value_heads);
    add(g, from.g, s.value_heads);
  }
};

HostRows random_rows(int64_t rows, const DeltaShape& s, const std::vector<double>& normal, Random& random,
                     bool strange = true) {
  HostRows r;
  const double unit = 1 / std::sqrt(static_cast<double>(s.key_dim)),
               speed = strange ? std::pow(10.0, static_cast<double>(draw(random, -4, 1))) : 0.01;
  auto at = static_cast<size_t>(draw(random, 0, std::ssize(normal) - 1));
  const auto next = [&] { return normal[at++ % normal.size()]; };
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t kind = strange ? draw(random, 0, 19) : 19;
    const double v_scale = kind == 1 ? 1e7 : kind == 2 ? 1e-38 : 1, k_scale = kind == 3 ? 1e-20 : unit;
    for (int64_t i = 0; i < s.qkv_width(); ++i) {
      const double x = next() * (i < 2 * s.key_width() ? k_scale : v_scale);
      r.qkv.push_back(bf16(static_cast<float>(kind == 0 ? -0.0 : x)));
    }
    for (int64_t h = 0; h < s.value_heads; ++h) {
      const double x = next();
      r.beta.push_back(static_cast<float>(1 / (1 + std::exp(-next()))));
      r.g.push_back(static_cast<float>(kind == 4 ? -90 : kind == 5 ? 0 : -speed * x * x));
    }
  }
  return r;
}

template <class T>
Tensor to_device(Ctx& c, DType type, int64_t count, int64_t width, const std::vector<T>& values,
                 int64_t spare = 0) {
  const Tensor t = c.scratch.make({count + spare, width}, type);
  device::fill(c.lane, t.raw(), 0xff, t.bytes());
  device::copy_to_device(c.lane, t.raw(), values.data(), std::ssize(values) * int64_t{sizeof(T)});
  return rows(t, 0, count);
}

/// How many elements differ, and the first.
struct Difference {
  int64_t count = 0, first = -1;
  template <class T>
  void compare(const std::vector<T>& got, const std::vector<T>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) {
        if (count++ == 0) first = static_cast<int64_t>(i);
      }
  }
};

template <class T>
std::vector<T> host(Ctx& c, const Tensor& t) {
  std::vector<T> v(static_cast<size_t>(t.size()));
  device::copy_from_device(c.lane, v.data(), t.raw(), t.bytes());
  return v;
}

struct Outputs {
  std::vector<bf16> o, u;
  std::vector<float> decays;
};

class GpuDeltaRule : public ::testing::Test {
 protected:
  Backend gpu_{Device::cuda};
  Ctx& c = gpu_.ctx();
  const std::vector<double> normal_ = normal_values((1 << 18) + 1, 7);
  int64_t differing_ = 0, cases_ = 0, values_ = 0;

  Outputs packed(const HostRows& r, const Numbers& ends, const DeltaShape& s, bool plain) {
    ArenaScope scope(c.scratch);
    const int64_t T = ends.back(), spare = 70;
    const Tensor qkv = to_device(c, DType::bf16, T, s.qkv_width(), r.qkv, spare),
                 beta = to_device(c, DType::f32, T, s.value_heads, r.beta, spare),
                 g = to_device(c, DType::f32, T, s.value_heads, r.g, spare),
                 o = to_device<bf16>(c, DType::bf16, T, s.value_width(), {}),
                 u = to_device<bf16>(c, DType::bf16, T, s.value_width(), {}),
                 decays = to_device<float>(c, DType::f32, T, s.value_heads, {});
    const Tensor cu = c.scratch.make({std::ssize(ends)}, DType::i32);
    device::copy_to_device(c.lane, cu.raw(), ends.data(), cu.bytes());
    if (plain)
      cuda::delta_rule_plain(c, DType::bf16, cuda::packed_call(o, u, decays, qkv, beta, g, cu, s), false);
    else
      delta_rule_forward(c, o, u, decays, qkv, beta, g, cu, s);
    return {host<bf16>(c, o), host<bf16>(c, u), host<float>(c, decays)};
  }

  void expect_same(const char* what, const Difference& d, int64_t width) {
    differing_ += d.count;
    EXPECT_EQ(d.count, 0) << what << " of case " << cases_ << ": the first that differs is in row "
                          << d.first / width << ", column " << d.first % width;
  }
  void expect_same(const Outputs& got, const Outputs& want, const DeltaShape& s) {
    Difference o, u, decays;
    o.compare(got.o, want.o), u.compare(got.u, want.u), decays.compare(got.decays, want.decays);
    expect_same("decays", decays, s.value_heads);
    expect_same("u", u, s.value_width());
    expect_same("o", o, s.value_width());
    values_ += std::ssize(want.o);
  }
};

/// Sequences over pages, whose slots and tails are NaN where nobody has them.
class PagedRun {
 public:
  struct Sequence {
    int64_t begin, length;  // rows of the packed batch
    int64_t done = 0;
    int32_t tail = -1, slot = -1;
  };
  static constexpr int64_t kLayers = 2, kLayer = 1;

  PagedRun(Ctx& ctx, const DeltaShape& s, const HostRows& rows, const std::vector<bf16>& want)
      : c(ctx), s_(s), rows_(rows), want_(want) {
    const auto pool = [&](DType type, int64_t count, int64_t width) {
      const Tensor t = c.scratch.make({kLayers, count, width}, type);
      device::fill(c.lane, t.raw(), 0xff, t.bytes());
      return t;
    };
    pages_.windows = pool(DType::bf16, kTails, 8);
    pages_.keys = pool(DType::bf16, kTails, kDeltaChunk * s.key_width());
    pages_.writes = pool(DType::bf16, kTails, kDeltaChunk * s.value_width());
    pages_.decays = pool(DType::f32, kTails, kDeltaChunk * s.value_heads);
    pages_.states = pool(DType::f32, kSlots, s.value_width() * s.key_dim);
    for (int32_t i = 0; i < kTails; ++i) tails_.push_back(i);
    for (int32_t i = 0; i < kSlots; ++i) slots_.push_back(i);
  }

  void add(int64_t begin, int64_t length) {
    sequences.push_back({begin, length});
    sequences.back().tail = take(tails_);
  }
  /// Another sequence with the rows of this one, of which it takes over the state.
  void fork(size_t n) {
    Sequence other = sequences[n];
    other.tail = take(tails_);
    for (const Tensor& pool : {pages_.keys, pages_.writes, pages_.decays}) {
      const int64_t bytes = pool.dim(2) * dtype_size(pool.dtype);
      char* const layer = static_cast<char*>(pool.raw()) + kLayer * pool.dim(1) * bytes;
      device::copy(c.lane, layer + other.tail * bytes, layer + sequences[n].tail * bytes, bytes);
    }
    sequences.push_back(other);
  }
  bool is_done() const {
    return std::all_of(sequences.begin(), sequences.end(),
                       [](const Sequence& q) { return q.done == q.length; });
  }

  /// So many further rows of each sequence, as far as it has them, in one batch.
  Difference step(const std::vector<int64_t>& counts, Random& random) {
    HostRows batch;
    std::vector<bf16> want;
    Numbers ends{0}, lengths, from, to, tails;
    std::vector<int32_t> left;
    read_.clear();
    for (const Sequence& q : sequences) read_.push_back(q.slot);
    for (size_t n = 0; n < sequences.size(); ++n) {
      Sequence& q = sequences[n];
      const int64_t end = std::min(q.length, q.done + counts[n]), width = s_.value_width();
      if (end == q.done && random() % 2 == 0) continue;  // else it is there, without rows
      batch.append(rows_, q.begin + q.done, q.begin + end, s_);
      want.insert(want.end(), want_.begin() + (q.begin + q.done) * width,
                  want_.begin() + (q.begin + end) * width);
      ends.push_back(static_cast<int32_t>(ends.back() + end - q.done));
      lengths.push_back(static_cast<int32_t>(end)), tails.push_back(q.tail), from.push_back(q.slot);
      if (end / kDeltaChunk > q.done / kDeltaChunk && (q.slot < 0 || is_shared(n) || random() % 2 == 0)) {
        const int32_t old = std::exchange(q.slot, take(slots_));
        const auto has = [old](const Sequence& other) { return other.slot == old; };
        if (old >= 0 && std::none_of(sequences.begin(), sequences.end(), has)) left.push_back(old);
      }
      to.push_back(q.slot);
      q.done = end;
    }
    Difference d;
    if (ends.back() > 0) d.compare(run(batch, ends, lengths, tails, from, to), want);
    for (const int32_t slot : left) {
      const int64_t bytes = pages_.states.dim(2) * 4;
      device::fill(c.lane, static_cast<char*>(pages_.states.raw()) + (kLayer * kSlots + slot) * bytes, 0xff,
                   bytes);
      slots_.push_back(slot);
    }
    return d;
  }

  std::vector<Sequence> sequences;

 private:
  static constexpr int32_t kTails = 12, kSlots = 24;

  static int32_t take(std::vector<int32_t>& free) {
    CHECK(!free.empty(), "no free tail or slot");
    const int32_t last = free.back();
    free.pop_back();
    return last;
  }
  /// Another sequence reads its slot in this step.
  bool is_shared(size_t n) const { return std::count(read_.begin(), read_.end(), sequences[n].slot) > 1; }
  Tensor numbers(const Numbers& v) {
    const Tensor t = c.scratch.make({std::ssize(v)}, DType::i32);
    device::copy_to_device(c.lane, t.raw(), v.data(), t.bytes());
    return t;
  }
  std::vector<bf16> run(const HostRows& batch, const Numbers& ends, const Numbers& lengths,
                        const Numbers& tails, const Numbers& from, const Numbers& to) {
    ArenaScope scope(c.scratch);
    const int64_t T = ends.back();
    DeltaPages pages = pages_;
    pages.tails = numbers(tails), pages.from = numbers(from), pages.to = numbers(to),
    pages.lengths = numbers(lengths);
    const Tensor o = to_device<bf16>(c, DType::bf16, T, s_.value_width(), {});
    delta_rule_paged(c, o, pages, kLayer, to_device(c, DType::bf16, T, s_.qkv_width(), batch.qkv, 70),
                     to_device(c, DType::f32, T, s_.value_heads, batch.beta, 70),
                     to_device(c, DType::f32, T, s_.value_heads, batch.g, 70), numbers(ends), s_);
    return host<bf16>(c, o);
  }

  Ctx& c;
  DeltaShape s_;
  const HostRows& rows_;
  const std::vector<bf16>& want_;
  DeltaPages pages_;
  std::vector<int32_t> tails_, slots_;  // that are free
  std::vector<int32_t> read_;           // by the step, of each sequence
};

DeltaShape random_shape(Random& random) {
  const int64_t key_heads = draw(random, 1, 2), value_heads = key_heads * draw(random, 1, 4);
  if (draw(random, 0, 7) > 0) return {key_heads, value_heads, 128, 128};
  constexpr int64_t kDims[] = {16, 40, 64, 7, 256, 130};
  return {key_heads, value_heads, kDims[draw(random, 0, 5)], kDims[draw(random, 0, 5)]};
}

/// 500 batches: whole, and over pages row by row (a third of them), or in pieces from 0 rows to more than two
/// chunks; now and then a sequence has a fork.
TEST_F(GpuDeltaRule, EveryWayHasTheSameBits) {
  for (; cases_ < 500; ++cases_) {
    ArenaScope scope(c.scratch);
    Random random(static_cast<uint64_t>(cases_) + 1);
    const DeltaShape s = random_shape(random);
    const bool row_by_row = cases_ % 3 == 0;
    const int64_t count = draw(random, 1, 3), most = row_by_row ? 150 : draw(random, 0, 3) == 0 ? 700 : 200;
    Numbers ends{0};
    for (int64_t n = 0; n < count; ++n)
      ends.push_back(ends.back() + static_cast<int32_t>(draw(random, 1, most)));
    const HostRows rows = random_rows(ends.back(), s, normal_, random);
    const Outputs want = packed(rows, ends, s, /*plain=*/true);
    expect_same(packed(rows, ends, s, /*plain=*/false), want, s);

    PagedRun run(c, s, rows, want.o);
    for (size_t n = 0; n + 1 < ends.size(); ++n) run.add(ends[n], ends[n + 1] - ends[n]);
    for (int64_t turn = 0; !run.is_done(); ++turn) {
      std::vector<int64_t> counts;
      for (size_t n = 0; n < run.sequences.size(); ++n)
        counts.push_back(row_by_row ? 1 : draw(random, 0, turn % 3 == 0 ? 150 : turn % 3 == 1 ? 20 : 1));
      const Difference d = run.step(counts, random);
      expect_same("o over pages", d, s.value_width());
      if (d.count > 0) break;
      const auto n = static_cast<size_t>(draw(random, 0, std::ssize(run.sequences) - 1));
      if (run.sequences.size() < 6 && draw(random, 0, 19) == 0) run.fork(n);
    }
    if (differing_ > 0 && cases_ > 20) break;
  }
  std::printf("%ld cases, %ld outputs, %ld differ\n", cases_, values_, differing_);
}

/// A sequence that begins again at a wrong row is found from that row on.
TEST_F(GpuDeltaRule, AResetAtAWrongRowIsSeen) {
  Random random(3);
  const DeltaShape s{1, 2, 128, 128};
  const HostRows rows = random_rows(300, s, normal_, random, /*strange=*/false);
  for (const bool plain : {true, false}) {
    const Outputs whole = packed(rows, {0, 300}, s, plain);
    for (const int32_t wrong : {1, 64, 65, 150}) {
      Difference d;
      d.compare(packed(rows, {0, wrong, 300}, s, plain).o, whole.o);
      EXPECT_GT(d.count, 1000) << wrong;
      EXPECT_EQ(d.first / s.value_width(), wrong);
    }
  }
}

TEST_F(GpuDeltaRule, AHundredTimesTheSameBits) {
  Random random(4);
  const DeltaShape s{2, 4, 128, 128};
  const HostRows rows = random_rows(1500, s, normal_, random);
  const Outputs first = packed(rows, {0, 700, 701, 1500}, s, false);
  for (int i = 0; i < 100; ++i) {
    expect_same(packed(rows, {0, 700, 701, 1500}, s, false), first, s);
    if (differing_ > 0) return;
  }
}

/// What a run does before it uses kernels for heads: they pass, and one value that differs is found.
TEST_F(GpuDeltaRule, TheSelfTestFindsOtherBits) {
  for (const auto& [value_heads, group] : {std::pair{1, 1}, {4, 2}, {32, 2}, {48, 3}, {64, 4}}) {
    const cuda::DeltaHeads heads{value_heads,
                                 group,
                                 128,
                                 128,
                                 128 * value_heads / group,
                                 128 * (2 * value_heads / group + value_heads)};
    EXPECT_TRUE(cuda::has_bits_of_plain(c.lane, heads)) << value_heads << " heads, groups of " << group;
  }
  const auto spoil_last_row = [](Ctx& ctx, const cuda::DeltaCall& call) {
    auto* const o = static_cast<char*>(call.o) + int64_t{call.T} * call.heads.value_heads * 128 * 2;
    device::fill(ctx.lane, o - 2, 0xff, 2);
  };
  const cuda::DeltaHeads heads{4, 2, 128, 128, 256, 1024};
  cuda::DeltaKernels scan, decode;
  scan.scan = [&](Ctx& ctx, const cuda::DeltaCall& call, bool skip) {
    cuda::delta_rule_scan(ctx, call, skip);
    spoil_last_row(ctx, call);
  };
  decode.decode = [&](Ctx& ctx, const cuda::DeltaCall& call, bool single) {
    cuda::delta_rule_decode(ctx, call, single);
    if (!single) spoil_last_row(ctx, call);
  };
  EXPECT_FALSE(cuda::has_bits_of_plain(c.lane, heads, scan));
  EXPECT_FALSE(cuda::has_bits_of_plain(c.lane, heads, decode));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
