// A row of a hybrid model has the same bits packed, token by token, in pieces of any length, beside any
// others, behind a prefix that another sequence has too, and once more after its state was dropped; nothing
// of it is read from memory that another sequence had.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/models/layer_pass.h"
#include "src/ops/backend.h"
#include "tests/rollout/hybrid_engine.h"
#include "tests/support/check_op.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

constexpr int64_t kLongest = 700, kPageTokens = 16, kSequences = 4;

using Rows = std::vector<std::string>;

Rows rows_of(const Ctx& c, const Tensor& t) {
  const std::vector<char> bytes = bytes_of(c, t);
  const size_t row = bytes.size() / static_cast<size_t>(t.dim(0));
  Rows rows;
  for (size_t at = 0; at < bytes.size(); at += row) rows.emplace_back(bytes.data() + at, row);
  return rows;
}

/// The hidden states of sequences in one pack, one after the other.
Rows packed(Ctx& c, const Model& model, const std::vector<std::vector<int32_t>>& sequences) {
  const ArenaScope scope(c.scratch);
  std::vector<int32_t> tokens, positions, ends{0};
  for (const std::vector<int32_t>& s : sequences) {
    tokens.insert(tokens.end(), s.begin(), s.end());
    for (size_t i = 0; i < s.size(); ++i) positions.push_back(static_cast<int32_t>(i));
    ends.push_back(static_cast<int32_t>(tokens.size()));
  }
  const int64_t n = std::ssize(tokens);
  return rows_of(c, forward_pass(c, model,
                                 {.tokens = view_of(tokens.data(), {n}),
                                  .positions = view_of(positions.data(), {n}),
                                  .cu_seqlens = view_of(ends.data(), {std::ssize(ends)})}));
}

/// Memory of running sequences: pages in a scrambled order, a tail each, and a slot for every border that one
/// passes; all of it NaN at first.
class Cache {
 public:
  Cache(const Model& model, DType dtype) : dtype_(dtype) {
    const ModelConfig& m = model.config();
    const DeltaConfig& d = m.delta;
    const int64_t nets = std::ssize(d.layers), attention = m.num_attention_layers(),
                  keys = d.key_heads * d.key_dim, values = d.value_heads * d.value_dim,
                  kv = m.num_kv_heads * m.head_dim * kPageTokens;
    const DType wide = accumulate_dtype(dtype);
    keys_ = nan({attention, kPages, kv}, dtype), values_ = nan({attention, kPages, kv}, dtype);
    states_.windows = nan({nets, kSequences, (d.taps - 1) * (2 * keys + values)}, dtype);
    states_.keys = nan({nets, kSequences, kDeltaChunk * keys}, dtype);
    states_.writes = nan({nets, kSequences, kDeltaChunk * values}, dtype);
    states_.decays = nan({nets, kSequences, kDeltaChunk * d.value_heads}, wide);
    states_.states = nan({nets, kSlots, values * d.key_dim}, wide);
  }

  struct Running {
    int32_t number = 0, slot = kSlots - 1;
    int64_t done = 0;
    int64_t reset_at = 0;  // the states begin anew at this row
  };

  /// The next `counts` rows of the sequences.
  Rows step(Ctx& c, const Model& model, std::vector<Running>& running,
            const std::vector<std::vector<int32_t>>& tokens, const std::vector<int64_t>& counts) {
    const ArenaScope scope(c.scratch);
    std::vector<int32_t> ids, positions, ends{0}, lengths, table, tails, from, to, rows_of_states;
    for (size_t n = 0; n < running.size(); ++n) {
      Running& r = running[n];
      const int64_t end = r.done + counts[n];
      for (int64_t i = r.done; i < end; ++i) {
        ids.push_back(tokens[n][static_cast<size_t>(i)]);
        positions.push_back(static_cast<int32_t>(i));
      }
      ends.push_back(static_cast<int32_t>(ids.size()));
      lengths.push_back(static_cast<int32_t>(end));
      rows_of_states.push_back(static_cast<int32_t>(end - r.reset_at));
      for (int64_t p = 0; p < kPagesOfOne; ++p) table.push_back(page(r.number, p));
      tails.push_back(r.number);
      from.push_back(r.slot);
      if ((end - r.reset_at) / kDeltaChunk > (r.done - r.reset_at) / kDeltaChunk)
        r.slot = next_slot_++ % (kSlots - 1);
      to.push_back(r.slot);
      r.done = end;
    }
    const int64_t n = std::ssize(ids), sequences = std::ssize(running);
    if (n == 0) return {};
    const auto view = [](const std::vector<int32_t>& v) { return view_of(v.data(), {std::ssize(v)}); };
    const PagedKv kv{keys_, values_, view_of(table.data(), {sequences, kPagesOfOne}), view(lengths),
                     kPageTokens};
    DeltaPages states = states_;
    states.tails = view(tails), states.from = view(from), states.to = view(to),
    states.lengths = view(rows_of_states);
    return rows_of(c, forward_pass(c, model,
                                   {.tokens = view(ids),
                                    .positions = view(positions),
                                    .cu_seqlens = view(ends),
                                    .kv = &kv,
                                    .states = &states}));
  }

  /// `to` has what `from` has; the slot is that of both.
  void fork(const Running& from, Running& to) {
    to.slot = from.slot, to.done = from.done;
    for (int64_t p = 0; p < kPagesOfOne; ++p)
      for (const Tensor& pool : {keys_, values_}) copy(pool, page(from.number, p), page(to.number, p));
    for (const Tensor& pool : {states_.windows, states_.keys, states_.writes, states_.decays})
      copy(pool, from.number, to.number);
  }
  /// Its memory is gone: the sequence is prefilled again.
  void drop(Running& r) {
    r.slot = kSlots - 1, r.done = 0;
    for (int64_t p = 0; p < kPagesOfOne; ++p)
      for (const Tensor& pool : {keys_, values_}) copy(pool, -1, page(r.number, p));
    for (const Tensor& pool : {states_.windows, states_.keys, states_.writes, states_.decays})
      copy(pool, -1, r.number);
  }

 private:
  static constexpr int64_t kPagesOfOne = (kLongest + kPageTokens - 1) / kPageTokens;
  static constexpr int64_t kPages = kSequences * kPagesOfOne, kSlots = 64;

  static int32_t page(int64_t number, int64_t p) {
    return static_cast<int32_t>((number * kPagesOfOne + p) * 37 % kPages);
  }
  Tensor nan(std::initializer_list<int64_t> shape, DType dtype) {
    const Tensor t = memory_.make(shape, dtype);
    std::memset(t.raw(), 0xff, static_cast<size_t>(t.bytes()));
    return t;
  }
  /// Row `from` of every layer; -1: NaN.
  static void copy(const Tensor& pool, int64_t from, int64_t to) {
    const int64_t bytes = pool.dim(2) * dtype_size(pool.dtype);
    for (int64_t layer = 0; layer < pool.dim(0); ++layer) {
      char* const base = static_cast<char*>(pool.raw()) + layer * pool.dim(1) * bytes;
      if (from < 0)
        std::memset(base + to * bytes, 0xff, static_cast<size_t>(bytes));
      else
        std::memcpy(base + to * bytes, base + from * bytes, static_cast<size_t>(bytes));
    }
  }

  DType dtype_;
  Arena memory_;
  Tensor keys_, values_;
  DeltaPages states_;
  int32_t next_slot_ = 0;
};

int64_t below(uint64_t seed, int64_t index, int64_t limit) {
  return static_cast<int64_t>(uniform_value(seed, index) * static_cast<double>(limit));
}

/// Lengths from 1 to `longest`; two sequences begin alike, and the second one is forked from the first
/// somewhere in what they share.
void expect_same_rows(DType dtype, uint64_t seed, int64_t longest) {
  SCOPED_TRACE(fmt::format("{}, seed {}", dtype_name(dtype), seed));
  Backend backend(Device::cpu, seed % 2 == 0 ? 1 : 2);
  Ctx& c = backend.ctx();
  const ModelConfig config = hybrid_config();
  const auto model = tiny_model_of(config, dtype, kLongest + 1);
  std::vector<std::vector<int32_t>> tokens;
  for (uint64_t n = 0; n < kSequences; ++n)
    tokens.push_back(
        random_ids(1 + below(seed, static_cast<int64_t>(n), longest), kTinyVocab, 100 * seed + n));
  const int64_t shared = std::min(std::ssize(tokens[0]), std::ssize(tokens[1]));
  const int64_t fork_at = below(seed, 50, shared);
  std::copy_n(tokens[0].begin(), fork_at, tokens[1].begin());
  std::vector<Rows> want;
  for (const std::vector<int32_t>& s : tokens) want.push_back(packed(c, *model, {s}));
  {
    Rows all;
    for (const Rows& rows : want) all.insert(all.end(), rows.begin(), rows.end());
    ASSERT_EQ(packed(c, *model, tokens) == all, true) << "packed";
  }
  Cache cache(*model, dtype);
  std::vector<Cache::Running> running(kSequences);
  for (int32_t n = 0; n < kSequences; ++n) running[static_cast<size_t>(n)].number = n;
  bool forked = fork_at == 0, dropped = false;
  for (int64_t turn = 0;; ++turn) {
    std::vector<int64_t> counts;
    const int64_t most = std::array<int64_t, 4>{1, 3, 20, 150}[static_cast<size_t>(below(seed + 1, turn, 4))];
    for (int64_t n = 0; n < kSequences; ++n) {
      const auto& r = running[static_cast<size_t>(n)];
      int64_t left = std::ssize(tokens[static_cast<size_t>(n)]) - r.done;
      if (n == 0 && !forked) left = fork_at - r.done;
      if (n == 1 && !forked) left = 0;
      counts.push_back(std::min(left, below(seed + 2, kSequences * turn + n, most + 1)));
    }
    const std::vector<Cache::Running> before = running;
    const Rows rows = cache.step(c, *model, running, tokens, counts);
    size_t at = 0;
    for (size_t n = 0; n < kSequences; ++n)
      for (int64_t i = 0; i < counts[n]; ++i, ++at)
        ASSERT_EQ(rows[at] == want[n][static_cast<size_t>(before[n].done + i)], true)
            << "sequence " << n << ", row " << before[n].done + i << " of " << tokens[n].size();
    if (!forked && running[0].done == fork_at) cache.fork(running[0], running[1]), forked = true;
    if (!dropped && 2 * running[2].done > std::ssize(tokens[2])) cache.drop(running[2]), dropped = true;
    bool done = forked && dropped;
    for (size_t n = 0; n < kSequences; ++n) done = done && running[n].done == std::ssize(tokens[n]);
    if (done) break;
    ASSERT_LT(turn, 100000);
  }
}

TEST(HybridBits, RowsAreThoseOfPackedSequences) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (uint64_t seed = 0; seed < 12; ++seed)
      expect_same_rows(dtype, 1000 + 10 * seed, seed % 4 == 3 ? 300 : 150);
  expect_same_rows(DType::f64, 2000, 150);
  expect_same_rows(DType::bf16, 2001, kLongest);
}

TEST(HybridBits, AHundredForwardsHaveOneResult) {
  const auto model = tiny_model_of(hybrid_config(), DType::bf16, kLongest + 1);
  const std::vector<std::vector<int32_t>> tokens{random_ids(70, kTinyVocab, 3), random_ids(3, kTinyVocab, 4),
                                                 random_ids(130, kTinyVocab, 5)};
  Rows first;
  for (int i = 0; i < 100; ++i) {
    Backend backend(Device::cpu, 1 + i % 3);
    const Rows rows = packed(backend.ctx(), *model, tokens);
    if (i == 0) first = rows;
    ASSERT_EQ(rows == first, true) << "forward " << i;
  }
}

/// States that begin anew where they should not are seen in the row where they do, and in those that follow.
TEST(HybridBits, AResetAtAWrongRowIsFound) {
  Backend backend(Device::cpu, 1);
  Ctx& c = backend.ctx();
  const auto model = tiny_model_of(hybrid_config(), DType::bf16, kLongest + 1);
  const std::vector<std::vector<int32_t>> tokens{random_ids(140, kTinyVocab, 3)};
  const Rows want = packed(c, *model, tokens);
  for (const int64_t at : {1, 2, 15, 16, 63, 64, 65, 127, 128, 139}) {
    Cache cache(*model, DType::bf16);
    std::vector<Cache::Running> running(1);
    const Rows before = cache.step(c, *model, running, tokens, {at});
    running[0].reset_at = at;
    const Rows after = cache.step(c, *model, running, tokens, {140 - at});
    int64_t differ = 0;
    for (int64_t i = 0; i < at; ++i)
      EXPECT_EQ(before[static_cast<size_t>(i)] == want[static_cast<size_t>(i)], true);
    for (int64_t i = at; i < 140; ++i)
      differ += after[static_cast<size_t>(i - at)] != want[static_cast<size_t>(i)];
    EXPECT_EQ(differ, 140 - at) << "reset at row " << at;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
