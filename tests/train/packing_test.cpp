// The packing planner: quality on lengths like those of GSM8K, and properties on random ones.

#include "src/train/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "src/core/check.h"
#include "src/core/json.h"
#include "tests/support/real_data.h"

namespace temper {
namespace {

const std::string kGsm8k = real_data("gsm8k/train.jsonl");
const CostModel kCost;

/// Question and answer lengths in tokens, at four characters per token.
std::vector<int64_t> gsm8k_lengths() {
  std::vector<int64_t> lengths;
  std::ifstream in(kGsm8k);
  for (std::string line; std::getline(in, line);) {
    const Json record = parse_json(line, kGsm8k);
    const size_t characters =
        record.at("question").get<std::string>().size() + record.at("answer").get<std::string>().size();
    lengths.push_back(std::max<int64_t>(2, static_cast<int64_t>(characters / 4)));
  }
  return lengths;
}

/// The same mean (130), spread (54) and range (25 to 422) as GSM8K's; only the engine's own numbers are used,
/// which the standard fixes.
std::vector<int64_t> lengths_like_gsm8k(size_t count) {
  std::mt19937_64 engine(8);
  std::vector<int64_t> lengths;
  while (lengths.size() < count) {
    double sum = 0;  // of 12 uniform numbers: close to normal
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine() >> 11) * 0x1p-53;
    lengths.push_back(std::clamp<int64_t>(std::llround(130.0 * std::exp(0.4 * (sum - 6.0) - 0.08)), 25, 422));
  }
  return lengths;
}

/// Every sequence of non-zero length once, ascending in its micro-batch, no micro-batch empty or over the
/// budget.
void expect_legal(const PackPlan& plan, const std::vector<int64_t>& lengths, int ranks, int64_t budget) {
  ASSERT_EQ(plan.ranks.size(), static_cast<size_t>(ranks));
  std::vector<int> seen(lengths.size(), 0);
  int64_t microbatches = 0;
  for (const auto& rank : plan.ranks)
    for (const auto& microbatch : rank) {
      ++microbatches;
      int64_t tokens = 0;
      for (int32_t i : microbatch) {
        ++seen.at(static_cast<size_t>(i));
        tokens += lengths[static_cast<size_t>(i)];
      }
      EXPECT_TRUE(tokens > 0 && tokens <= budget) << tokens << " of " << budget;
      EXPECT_TRUE(std::is_sorted(microbatch.begin(), microbatch.end()));
    }
  EXPECT_EQ(plan.num_microbatches, microbatches);
  for (size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(seen[i], lengths[i] > 0 ? 1 : 0) << "sequence " << i;
}

/// Fill and imbalance computed again from the plan's lists.
void expect_true_figures(const PackPlan& plan, const std::vector<int64_t>& lengths, int64_t budget) {
  double tokens = 0, total = 0, heaviest = 0;
  for (const auto& rank : plan.ranks) {
    double cost = 0;
    for (const auto& microbatch : rank)
      for (int32_t i : microbatch) {
        tokens += static_cast<double>(lengths[static_cast<size_t>(i)]);
        cost += kCost.cost(lengths[static_cast<size_t>(i)]);
      }
    total += cost;
    heaviest = std::max(heaviest, cost);
  }
  EXPECT_DOUBLE_EQ(plan.fill, tokens / static_cast<double>(plan.num_microbatches * budget));
  EXPECT_NEAR(plan.imbalance, heaviest * static_cast<double>(plan.ranks.size()) / total - 1.0, 1e-12);
}

void expect_well_packed(const std::vector<int64_t>& lengths) {
  for (const int ranks : {2, 4, 8})
    for (const int64_t budget : {2048, 4096}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, budget " << budget);
      const PackPlan plan = plan_packing(lengths, ranks, budget, kCost);
      expect_legal(plan, lengths, ranks, budget);
      expect_true_figures(plan, lengths, budget);
      EXPECT_GE(plan.fill, 0.96);
      EXPECT_LE(plan.imbalance, 0.04);
      std::printf("%d ranks, budget %ld: fill %.4f, imbalance %.5f\n", ranks, budget, plan.fill,
                  plan.imbalance);
    }
}

TEST(PackingQuality, LengthsLikeGsm8k) { expect_well_packed(lengths_like_gsm8k(7473)); }

TEST(PackingQuality, Gsm8k) {
  if (!path_exists(kGsm8k)) GTEST_SKIP() << how_to_get(kGsm8k);
  const std::vector<int64_t> lengths = gsm8k_lengths();
  ASSERT_EQ(lengths.size(), 7473u);
  expect_well_packed(lengths);
}

/// No rank has more than one micro-batch above the fewest that its tokens need.
void expect_few_microbatches(const PackPlan& plan, const std::vector<int64_t>& lengths, int64_t budget) {
  for (const auto& rank : plan.ranks) {
    int64_t tokens = 0;
    for (const auto& microbatch : rank)
      for (int32_t i : microbatch) tokens += lengths[static_cast<size_t>(i)];
    EXPECT_LE(static_cast<int64_t>(rank.size()), (tokens + budget - 1) / budget + 1);
  }
}

/// In a small update the last micro-batch of a rank cannot be full: at most one more than the tokens need.
TEST(PackingQuality, SmallUpdatesLoseAtMostOneMicrobatchPerRank) {
  for (const size_t count : {64, 256, 1024})
    for (const int ranks : {2, 4, 8}) {
      const std::vector<int64_t> lengths = lengths_like_gsm8k(count);
      const PackPlan plan = plan_packing(lengths, ranks, 4096, kCost);
      EXPECT_LE(plan.imbalance, 0.04) << count << " on " << ranks;
      expect_few_microbatches(plan, lengths, 4096);
    }
}

/// Between a shortest and a longest length a hundred times it, each length as likely as its logarithm.
std::vector<int64_t> ragged_lengths(size_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<int64_t> lengths;
  while (lengths.size() < count) {
    const double uniform = static_cast<double>(engine() >> 11) * 0x1p-53;
    lengths.push_back(std::llround(40.0 * std::pow(100.0, uniform)));
  }
  return lengths;
}

void expect_even(const std::vector<int64_t>& lengths, int ranks) {
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (const int64_t budget : {4096, 16384}) {
    SCOPED_TRACE(::testing::Message() << lengths.size() << " on " << ranks << " ranks, budget " << budget);
    const PackPlan plan = plan_packing(lengths, ranks, budget, kCost);
    expect_legal(plan, lengths, ranks, budget);
    expect_true_figures(plan, lengths, budget);
    EXPECT_LE(plan.imbalance, 0.02);
    expect_few_microbatches(plan, lengths, budget);
    const int64_t microbatches = tokens / ranks / budget;  // the last one of a rank cannot be full
    EXPECT_GE(plan.fill, microbatches >= 52 ? 0.98 : microbatches >= 24 ? 0.96 : 0.0);
  }
}

TEST(PackingQuality, UpdatesOf64SequencesARankAndMoreAreEven) {
  for (const int ranks : {2, 4, 8, 64})
    for (const size_t each : {64, 128, 1024}) {
      const size_t count = each * static_cast<size_t>(ranks);
      expect_even(lengths_like_gsm8k(count), ranks);
      for (uint64_t seed = 1; seed <= 4; ++seed) expect_even(ragged_lengths(count, seed), ranks);
    }
}

TEST(Packing, RandomPlansAreLegalAndRepeatable) {
  std::mt19937_64 engine(3);
  for (int round = 0; round < 300; ++round) {
    const int64_t budget = 1 + static_cast<int64_t>(engine() % 300);
    const int ranks = 1 + static_cast<int>(engine() % 9);
    std::vector<int64_t> lengths(engine() % 120);
    for (int64_t& length : lengths)
      length = static_cast<int64_t>(engine() % static_cast<uint64_t>(budget + 1));
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const PackPlan plan = plan_packing(lengths, ranks, budget, kCost);
    expect_legal(plan, lengths, ranks, budget);
    EXPECT_LE(plan.fill, 1.0);
    EXPECT_EQ(plan.to_bytes(), plan_packing(lengths, ranks, budget, kCost).to_bytes());
    EXPECT_EQ(PackPlan::from_bytes(plan.to_bytes()).to_bytes(), plan.to_bytes());
    EXPECT_EQ(PackPlan::from_bytes(plan.to_bytes()).ranks, plan.ranks);
  }
}

TEST(Packing, FewerSequencesThanRanks) {
  const std::vector<int64_t> lengths{5, 9};
  const PackPlan plan = plan_packing(lengths, 4, 16, kCost);
  expect_legal(plan, lengths, 4, 16);
  EXPECT_EQ(std::count_if(plan.ranks.begin(), plan.ranks.end(), [](const auto& r) { return r.empty(); }), 2);
  EXPECT_EQ(plan.num_microbatches, 2);
  EXPECT_GT(plan.imbalance, 1.0);
}

TEST(Packing, NothingToPack) {
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{}, std::vector<int64_t>{0, 0, 0}}) {
    const PackPlan plan = plan_packing(lengths, 3, 16, kCost);
    expect_legal(plan, lengths, 3, 16);
    EXPECT_EQ(plan.num_microbatches, 0);
    EXPECT_EQ(plan.fill, 0);
    EXPECT_EQ(plan.imbalance, 0);
  }
}

TEST(Packing, ASequenceMayTakeTheWholeBudgetButNoMore) {
  EXPECT_EQ(plan_packing(std::vector<int64_t>{16, 16}, 1, 16, kCost).fill, 1.0);
  try {
    plan_packing(std::vector<int64_t>{3, 17}, 2, 16, kCost);
    FAIL() << "17 tokens were packed into 16";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_EQ(error.problem().where, "train.max_tokens_per_microbatch");
    EXPECT_NE(error.problem().why.find("17"), std::string::npos);
    EXPECT_NE(error.problem().why.find("16"), std::string::npos);
  }
}

/// By tokens alone the sequence of 100 would share its rank with five of the short ones.
TEST(Packing, CostsAreQuadraticInLength) {
  std::vector<int64_t> lengths(20, 10);
  lengths.push_back(100);
  const PackPlan plan = plan_packing(lengths, 2, 200, {.linear = 1.0, .quadratic = 1.0});
  const auto& rank_of_long = plan.ranks[0].at(0) == std::vector<int32_t>{20} ? plan.ranks[0] : plan.ranks[1];
  EXPECT_EQ(rank_of_long.size(), 1u);
}

TEST(Packing, DamagedBytesAreRefused) {
  const std::string bytes = plan_packing(std::vector<int64_t>{3, 4, 5}, 2, 8, kCost).to_bytes();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(PackPlan::from_bytes(bytes.substr(0, size)), Error) << size;
}

/// Four micro-batches for each stage, of a rank's share; fewer where they would be too small, or where the
/// longest sequence is longer; as many as the budget makes where that is less.
TEST(PipelineBudget, KeepsStagesBusy) {
  const std::vector<int64_t> lengths(1024, 100);  // 102,400 tokens
  EXPECT_EQ(pipeline_budget(lengths, 1, 2, 4096, 65536), 12800);
  EXPECT_EQ(pipeline_budget(lengths, 2, 2, 4096, 65536), 6400);
  EXPECT_EQ(pipeline_budget(lengths, 4, 2, 4096, 65536), 4096);
  EXPECT_EQ(pipeline_budget(lengths, 1, 2, 4096, 8192), 8192);
  EXPECT_EQ(pipeline_budget(lengths, 1, 2, 4096, 2000), 2000);
  EXPECT_EQ(pipeline_budget(std::vector<int64_t>{}, 1, 2, 4096, 65536), 4096);
  std::vector<int64_t> one_long = lengths;
  one_long.back() = 30000;
  EXPECT_EQ(pipeline_budget(one_long, 4, 2, 4096, 65536), 30000);
  EXPECT_EQ(pipeline_budget(one_long, 4, 2, 4096, 8192), 8192);  // plan_packing says what does not fit
  for (const int stages : {2, 4}) {
    const int64_t budget = pipeline_budget(lengths, 1, stages, 1000, 65536);
    const PackPlan plan = plan_packing(lengths, 1, budget, kCost);
    EXPECT_GE(plan.num_microbatches, 4 * stages);
    EXPECT_LE(plan.num_microbatches, 4 * stages + 1);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
