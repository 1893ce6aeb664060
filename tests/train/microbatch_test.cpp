// Shares of a packed micro-batch: every token and every target is one rank's, in order, and no rank is
// without tokens.

#include "src/train/microbatch.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

Trajectory trajectory(int prompt, int response) {
  Trajectory t;
  for (int i = 0; i < prompt; ++i) t.prompt_tokens.push_back(100 + i);
  for (int i = 0; i < response; ++i) t.response.tokens.push_back(200 + i);
  t.response.mask.assign(static_cast<size_t>(response), 1);
  return t;
}

void expect_shares(const std::vector<Trajectory>& list, int ranks) {
  std::vector<const Trajectory*> all;
  std::vector<int32_t> sequences;
  for (const Trajectory& t : list) {
    sequences.push_back(static_cast<int32_t>(all.size()));
    all.push_back(&t);
  }
  const Microbatch whole = pack(all, sequences);
  EXPECT_EQ(whole.own.size(), std::ssize(whole.tokens));
  EXPECT_EQ(whole.own_rows, whole.rows);
  int64_t tokens = 0, targets = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Microbatch mb = whole;
    mb.keep_share(rank, ranks);
    EXPECT_GT(mb.num_tokens(), 0);
    EXPECT_EQ(mb.cu_seqlens.back(), std::ssize(mb.tokens));
    EXPECT_EQ(mb.own.begin, tokens);
    EXPECT_EQ(mb.own_targets.begin, targets);
    EXPECT_EQ(std::ssize(mb.own_rows), mb.own_targets.size());
    for (int64_t i = 0; i < mb.own_targets.size(); ++i) {
      const auto target = static_cast<size_t>(mb.own_targets.begin + i);
      EXPECT_EQ(mb.own.begin + mb.own_rows[static_cast<size_t>(i)], whole.rows[target]);
      EXPECT_EQ(mb.targets[target], whole.targets[target]);
    }
    tokens = mb.own.end, targets = mb.own_targets.end;
    EXPECT_EQ(tokens == std::ssize(mb.tokens), rank + 1 == ranks);
  }
  EXPECT_EQ(targets, std::ssize(whole.targets));
}

TEST(Microbatch, EveryTokenAndTargetIsOneRanks) {
  const std::vector<std::vector<Trajectory>> packs = {
      {trajectory(1, 1)},
      {trajectory(0, 3), trajectory(5, 1)},
      {trajectory(7, 4), trajectory(1, 1), trajectory(2, 9), trajectory(3, 0)},
  };
  for (const auto& pack : packs)
    for (int ranks = 1; ranks <= 9; ++ranks) expect_shares(pack, ranks);
}

/// Each predicted by the token before it; without a mask all count.
TEST(Microbatch, TargetsAreTheCountedTokens) {
  std::vector<Trajectory> list = {trajectory(3, 4), trajectory(0, 3), trajectory(2, 2), trajectory(2, 2)};
  list[0].response.mask = {0, 1, 0, 1};
  list[1].response.mask = {1, 0, 1};
  list[2].response.mask = {0, 0};
  list[3].response.mask = {};
  std::vector<const Trajectory*> all;
  for (const Trajectory& t : list) all.push_back(&t);
  const Microbatch mb = pack(all, std::vector<int32_t>{0, 1, 2, 3});
  EXPECT_EQ(std::ssize(mb.tokens), 6 + 2 + 3 + 3);
  EXPECT_EQ(mb.rows, (std::vector<int32_t>{3, 5, 7, 12, 13}));
  EXPECT_EQ(mb.targets, (std::vector<int32_t>{201, 203, 202, 200, 201}));
  EXPECT_EQ(mb.sequence, (std::vector<int32_t>{0, 0, 1, 3, 3}));
  EXPECT_EQ(mb.offset, (std::vector<int32_t>{1, 3, 2, 0, 1}));
  EXPECT_EQ(mb.inputs.sequence_begin, (std::vector<int32_t>{0, 2, 3, 3, 5}));
  EXPECT_EQ(mb.positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 0, 1, 2, 0, 1, 2}));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
