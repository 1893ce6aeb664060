// The plan by which weights travel between layouts: every element once, from one that has it; equal bits at
// the receiver; a message that is not what is awaited, or was changed on its way, stops the run.

#include "src/run/exchange/weight_transfer.h"

#include <gtest/gtest.h>

#include <deque>

#include "src/ops/backend.h"
#include "tests/run/exchange/shared_store.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

std::string bits(const ParameterStore& store) {
  const Tensor flat = store.flat_values();
  return {static_cast<const char*>(flat.raw()), static_cast<size_t>(flat.bytes())};
}

/// So many ranks, of which `tp` neighbours share a model.
Holders holders(int ranks, int tp) { return {{{Axis::tp, tp}, {Axis::dp, ranks / tp}}}; }

struct Layouts {
  Holders sources;
  int receiver_tp;
};
const Layouts kLayouts[] = {{holders(1, 1), 1}, {holders(5, 1), 1}, {holders(4, 4), 1}, {holders(4, 2), 4},
                            {holders(2, 1), 8}, {holders(8, 8), 2}, {holders(6, 2), 2}, {holders(3, 1), 4},
                            {holders(8, 4), 8}, {holders(2, 2), 2}};

std::string text(const Layouts& l) {
  return fmt::format("{} sources of tp {} to tp {}", l.sources.grid.size(), l.sources.grid.along(Axis::tp),
                     l.receiver_tp);
}

TEST(WeightTransfer, EveryRowComesOnceFromOneThatHasIt) {
  for (const Layouts& l : kLayouts)
    for (int rank = 0; rank < l.receiver_tp; ++rank)
      for (const ParamSpec& spec : shared_specs()) {
        const ShardPlace place{rank, l.receiver_tp};
        const auto whole_of = [&](const ShardPlace& of, int64_t own) -> int64_t {
          for (const RowSpan& span : row_spans(spec, of))
            if (own >= span.own && own < span.own + span.rows) return own - span.own + span.whole;
          return -1;
        };
        int64_t next = 0;
        for (const RowMove& move : row_moves(spec, l.sources, place, -1)) {
          EXPECT_EQ(move.to, next) << text(l) << ", " << spec.name;
          next += move.rows;
          for (int64_t row = 0; row < move.rows; ++row) {
            ASSERT_EQ(whole_of(place, move.to + row), move.whole + row) << text(l) << ", " << spec.name;
            ASSERT_EQ(whole_of(l.sources.place(move.holder), move.from + row), move.whole + row)
                << text(l) << ", " << spec.name;
          }
        }
        const RowSpan last = row_spans(spec, place).back();
        EXPECT_EQ(next, last.own + last.rows) << text(l) << ", " << spec.name;
      }
}

TEST(WeightTransfer, HoldersShareTheRowsEvenly) {
  const ParamSpec spec{.name = "w", .parts = {{"w", 1001}}, .shape = {1001, 8}};
  for (const RowMove& move : row_moves(spec, holders(4, 1), {}, -1))
    EXPECT_TRUE(move.rows == 250 || move.rows == 251);
  for (const RowMove& move : row_moves(spec, holders(4, 2), {1, 2}, -1))  // all four have it
    EXPECT_TRUE(move.rows == 250 || move.rows == 251);
}

/// What tp neighbours both have is said to be the first one's.
TEST(WeightTransfer, OneOfThoseThatGetARowIsTheFirst) {
  for (const ParamSpec& spec : shared_specs()) {
    int64_t rows = 0;
    for (int rank = 0; rank < 4; ++rank)
      for (const RowMove& move : row_moves(spec, holders(2, 2), {rank, 4}, -1))
        rows += move.first ? move.rows : 0;
    EXPECT_EQ(rows, spec.shape[0]) << spec.name;
  }
}

/// Sources, the receiver among them or not, and what came to it after some versions.
class Transfer {
 public:
  Transfer(const Layouts& l, int rank, DType dtype, int self)
      : to_place_{rank, l.receiver_tp}, sources_(static_cast<size_t>(l.sources.grid.size())) {
    for (int s = 0; s < l.sources.grid.size(); ++s)
      make_store(sources_[static_cast<size_t>(s)], l.sources.place(s), dtype, 10);
    make_store(to, to_place_, dtype, 20);
    make_store(want, to_place_, dtype, 10);
    plan = std::make_unique<WeightTransfer>(to, l.sources, to_place_, self, windows_);
  }
  const ParameterStore& from(int source) const { return sources_[static_cast<size_t>(source)]; }
  std::string message(int source, int64_t version) const {
    return plan->message(backend.ctx(), from(source), source, version);
  }

  ParameterStore to, want;
  std::unique_ptr<WeightTransfer> plan;
  mutable Backend backend{Device::cpu};

 private:
  ShardPlace to_place_;
  std::deque<ParameterStore> sources_;
  device::HostWindows windows_{Device::cpu};
};

TEST(WeightTransfer, TheSameBitsArriveUnderEveryLayout) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Layouts& l : kLayouts)
      for (int rank = 0; rank < l.receiver_tp; ++rank)
        for (const int self : {-1, l.sources.grid.size() - 1}) {
          Transfer t(l, rank, dtype, self);
          ASSERT_NE(bits(t.to), bits(t.want));
          EXPECT_EQ(std::count(t.plan->senders().begin(), t.plan->senders().end(), self), 0) << text(l);
          for (const int source : t.plan->senders())
            t.plan->apply(t.backend.ctx(), t.to, source, 3, t.message(source, 3));
          if (self >= 0) t.plan->copy_own(t.backend.ctx().lane, t.to, t.from(self));
          EXPECT_TRUE(bits(t.to) == bits(t.want))
              << text(l) << ", " << dtype_name(dtype) << ", self " << self;
        }
}

/// A rank that trains gets nothing that it has itself.
TEST(WeightTransfer, OnlyMissingRowsMove) {
  const Layouts same{holders(4, 2), 2}, cut{holders(4, 2), 4}, whole{holders(4, 2), 1};
  EXPECT_TRUE(Transfer(same, 1, DType::f32, 3).plan->senders().empty());
  EXPECT_TRUE(Transfer(cut, 3, DType::f32, 3).plan->senders().empty());  // the last quarter of the last half
  const Transfer t(whole, 0, DType::f32, 3);
  int64_t moved = 0, all = 0;
  for (const WeightPiece& piece : t.plan->pieces()) {
    all += piece.bytes;
    if (piece.move.holder != 3) moved += piece.bytes;
  }
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, all);
}

class BrokenTransfer : public ::testing::Test {
 protected:
  std::string message(int source, int64_t version = 5) { return t_.message(source, version); }
  void apply(int source, const std::string& message) {
    t_.plan->apply(t_.backend.ctx(), t_.to, source, 5, message);
  }

  Transfer t_{{holders(2, 1), 1}, 0, DType::f32, -1};
};

TEST_F(BrokenTransfer, OfAnotherVersionOrSizeIsRefused) {
  for (int64_t version : {0, 4, 6})
    expect_error(Exit::internal, {fmt::format("version {} came, 5 is awaited", version)}, "version",
                 [&] { apply(0, message(0, version)); });
  const std::string good = message(1);
  std::vector<std::string> wrong = {"", good.substr(0, 8), good.substr(0, 15),
                                    good.substr(0, good.size() - 1), good + "x"};
  for (const std::string& bytes : wrong)
    expect_error(Exit::internal, {fmt::format("{} bytes instead of {}", bytes.size(), good.size())}, "size",
                 [&] { apply(1, bytes); });
  EXPECT_NE(message(0).size(), good.size());
  expect_error(Exit::internal, {"bytes instead of"}, "message of the other source",
               [&] { apply(1, message(0)); });
}

TEST_F(BrokenTransfer, OneFlippedBitIsFound) {
  int64_t flips = 0;
  for (int source : {0, 1}) {
    const std::string good = message(source);
    for (size_t at = sizeof(int64_t); at < good.size(); at += 313, ++flips) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      expect_error(Exit::storage, {"changed on their way", fmt::format("trainer rank {}", source)},
                   fmt::format("byte {}", at), [&] { apply(source, bad); });
    }
  }
  EXPECT_GT(flips, 50);
  for (int source : {0, 1}) apply(source, message(source));
  EXPECT_TRUE(bits(t_.to) == bits(t_.want));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
