// Rank sets: what is one, what is none, and that no text does harm.

#include "src/comm/rank_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/support/expect_error.h"

namespace temper {
namespace {

using Ranks = std::vector<int>;

TEST(RankSet, ReadsSets) {
  EXPECT_EQ(parse_rank_set("all", 3), (Ranks{0, 1, 2}));
  EXPECT_EQ(parse_rank_set(" all ", 1), (Ranks{0}));
  EXPECT_EQ(parse_rank_set("5", 8), (Ranks{5}));
  EXPECT_EQ(parse_rank_set("0-2,5", 8), (Ranks{0, 1, 2, 5}));
  EXPECT_EQ(parse_rank_set(" 5 , 0 - 2 ", 8), (Ranks{0, 1, 2, 5}));
  EXPECT_EQ(parse_rank_set("3-3", 4), (Ranks{3}));
  EXPECT_EQ(parse_rank_set("007", 8), (Ranks{7}));
  EXPECT_EQ(parse_rank_set("0-7,16-23", 24).size(), 16u);
}

TEST(RankSet, RefusesEverythingElse) {
  for (const char* text : {"",
                           " ",
                           ",",
                           "0,",
                           ",0",
                           "0,,1",
                           "a",
                           "0-",
                           "-1",
                           "0--1",
                           "2-1",
                           "0,0",
                           "0-2,2",
                           "8",
                           "0-8",
                           "1.5",
                           "0x1",
                           "0-1-2",
                           "ALL",
                           "all,0",
                           "99999999999999999999",
                           "0-18446744073709551616",
                           "4294967296",
                           "list(range(0,8))",
                           "0 1",
                           "\n0",
                           "\xc2\xa0"})
    expect_error(Exit::usage, {}, text, [&] { parse_rank_set(text, 8); });
  expect_error(Exit::usage, {"rank 8", "8 ranks,"}, "beyond", [] { parse_rank_set("0-8", 8); });
  expect_error(Exit::usage, {"rank 2", "more than once"}, "twice", [] { parse_rank_set("0-2,2-3", 8); });
}

TEST(RankSet, TextIsTheInverse) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const int world = 1 + static_cast<int>(random() % 40);
    Ranks ranks;
    for (int rank = 0; rank < world; ++rank)
      if (random() % 2) ranks.push_back(rank);
    if (ranks.empty()) continue;
    EXPECT_EQ(parse_rank_set(rank_set_text(ranks), world), ranks);
  }
}

/// Random texts over the alphabet of rank sets: a defect, or distinct ascending ranks of the world.
TEST(RankSet, Fuzz) {
  const std::string alphabet = "0123456789--,, \tal.x";
  std::mt19937 random(6);
  int legal = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (int n = static_cast<int>(random() % 12); n > 0; --n) text += alphabet[random() % alphabet.size()];
    const int world = 1 + static_cast<int>(random() % 64);
    const RankSet set = read_rank_set(text, world);
    if (!set.defect.empty()) {
      EXPECT_TRUE(set.ranks.empty()) << text;
      continue;
    }
    ++legal;
    ASSERT_FALSE(set.ranks.empty()) << text;
    EXPECT_TRUE(std::is_sorted(set.ranks.begin(), set.ranks.end()));
    EXPECT_EQ(std::set<int>(set.ranks.begin(), set.ranks.end()).size(), set.ranks.size());
    EXPECT_GE(set.ranks.front(), 0);
    EXPECT_LT(set.ranks.back(), world);
  }
  EXPECT_GT(legal, 1000);
}

TEST(RankSet, HugeTextsAreBounded) {
  EXPECT_FALSE(read_rank_set(std::string(1 << 20, '9'), 4).defect.empty());
  EXPECT_FALSE(read_rank_set(std::string(1 << 20, ','), 4).defect.empty());
  EXPECT_LT(read_rank_set(std::string(1 << 20, '-'), 4).defect.size(), 200u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
