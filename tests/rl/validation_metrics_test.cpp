// Metrics of a validation set against counts that need no formula.

#include "src/rl/validation_metrics.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

Trajectory said(const std::string& text, double reward, bool excluded = false) {
  Trajectory t;
  t.response.text = text;
  t.response.tokens = {1, 2};
  t.response.finish = FinishReason::stop;
  t.raw_reward = t.reward = reward;
  t.excluded = excluded;
  return t;
}

std::optional<std::string> answer_of(const Trajectory& t) {
  return t.response.text.empty() ? std::nullopt : std::optional(t.response.text);
}

/// The share of all sets of k of n samples that hold one of the first `right`.
double counted(int n, int right, int k) {
  int sets = 0, hit = 0;
  for (int set = 0; set < 1 << n; ++set) {
    if (__builtin_popcount(static_cast<unsigned>(set)) != k) continue;
    ++sets;
    hit += (set & ((1 << right) - 1)) != 0;
  }
  return static_cast<double>(hit) / sets;
}

TEST(ValidationMetrics, PassIsTheShareOfAllChoices) {
  for (int n = 1; n <= 10; ++n)
    for (int right = 0; right <= n; ++right)
      for (int k = 1; k <= n; ++k)
        EXPECT_NEAR(pass_at(n, right, k), counted(n, right, k), 1e-14) << n << " " << right << " " << k;
  EXPECT_EQ(pass_at(1000, 999, 1000), 1);
  EXPECT_EQ(pass_at(1000, 0, 1), 0);
  EXPECT_NEAR(pass_at(100000, 1, 50000), 0.5, 1e-9);
}

TEST(ValidationMetrics, CountsOfPassArePowersAndAll) {
  EXPECT_EQ(pass_counts(1), std::vector<int64_t>{1});
  EXPECT_EQ(pass_counts(6), (std::vector<int64_t>{1, 2, 4, 6}));
  EXPECT_EQ(pass_counts(8), (std::vector<int64_t>{1, 2, 4, 8}));
}

TEST(ValidationMetrics, OfGroups) {
  const std::vector<Group> groups{
      {{said("7", 1), said("8", 0), said("8", 0), said("7", 1)}},             // a tie: 7 was said first
      {{said("3", 0), said("4", 1), said("", 1), said("3", 0)}},              // most say what is wrong
      {{said("5", 0, true), said("5", 0, true), said("9", 2), said("", 0)}},  // no vote without a reward
      {{said("", 0, true), said("", 0, true), said("", 0, true), said("", 0, true)}},
  };
  const std::map<std::string, double> m = validation_metrics("val/x/", groups, 4, answer_of);
  EXPECT_EQ(m.at("val/x/avg@4"), (0.5 + 0.5 + 1.0) / 3);
  EXPECT_EQ(m.at("val/x/score/mean"), 6.0 / 10);
  EXPECT_EQ(m.at("val/x/score/max"), 2);
  EXPECT_EQ(m.at("val/x/maj@4"), 2.0 / 4);
  EXPECT_NEAR(m.at("val/x/pass@1"), (0.5 + 0.5 + 0.25) / 4, 1e-15);
  EXPECT_NEAR(m.at("val/x/pass@2"), (5.0 / 6 + 5.0 / 6 + 0.5) / 4, 1e-15);
  EXPECT_EQ(m.at("val/x/pass@4"), 3.0 / 4);
  EXPECT_EQ(m.at("val/x/response_length/mean"), 2);
  EXPECT_FALSE(validation_metrics("", groups, 4, {}).contains("maj@4"));
  for (const std::string& name : validation_metric_names("val/x/", 4, true)) EXPECT_TRUE(m.contains(name));
  EXPECT_EQ(validation_metric_names("val/x/", 4, true).size(), m.size());
  EXPECT_TRUE(validation_metrics("", {}, 4, answer_of).empty());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
