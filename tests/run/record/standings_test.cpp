// Which steps are best, and when a run has reached what it is for: in order, with ties, across a resume.

#include "src/run/record/standings.h"

#include <gtest/gtest.h>

#include "src/core/check.h"

namespace temper {
namespace {

Config config(const std::string& mode, int64_t keep) {
  Config c;
  c.checkpoint.best = {"val/x/avg@1", mode, keep};
  c.run.stop_when = {"val/x/pass@1", 0.5, 2};
  return c;
}

std::map<std::string, double> measured(double avg, double pass = 0) {
  return {{"val/x/avg@1", avg}, {"val/x/pass@1", pass}};
}

std::vector<int64_t> best_of(const Standings& s) {
  std::vector<int64_t> steps;
  for (const Standings::Best& one : s.best()) steps.push_back(one.step);
  return steps;
}

TEST(Standings, TheBestFirstAndTheEarliestOfEqualOnes) {
  Standings s(config("auto", 2));
  EXPECT_FALSE(s.look(0, measured(9)).best) << "no checkpoint of it";
  EXPECT_TRUE(s.look(1, measured(0.25)).best);
  EXPECT_TRUE(s.look(2, measured(0.5)).best);
  EXPECT_FALSE(s.look(3, {{"actor/loss", 1}}).best) << "no validation";
  const Standings::News news = s.look(4, measured(0.5));
  EXPECT_EQ(news.best, 0.5);
  EXPECT_EQ(news.displaced, 1);
  EXPECT_FALSE(s.look(5, measured(0.5)).best);
  EXPECT_EQ(best_of(s), (std::vector<int64_t>{2, 4}));
  EXPECT_TRUE(s.is_best(4));
  EXPECT_FALSE(s.is_best(1));
  Standings least(config("min", 1));
  for (int64_t step = 1; step <= 3; ++step) least.look(step, measured(1.0 / static_cast<double>(step)));
  EXPECT_EQ(best_of(least), std::vector<int64_t>{3});
}

TEST(Standings, StopsAfterSoManyInARow) {
  Standings s(config("auto", 1));
  for (const double pass : {0.5, 0.4, 0.6}) s.look(1, measured(0, pass));
  EXPECT_FALSE(s.reached());
  Standings again(config("auto", 1));
  again.restore(s.text(), "here");
  again.look(2, measured(0, 0.5));
  EXPECT_TRUE(again.reached());
  EXPECT_EQ(again.reason(), "run.stop_when: val/x/pass@1 is at least 0.5, 2 times in a row");
  Config other = config("auto", 1);
  other.run.stop_when.at_least = 0.9;
  Standings higher(other);
  higher.restore(again.text(), "here");
  EXPECT_FALSE(higher.reached()) << "another goal";
  EXPECT_FALSE(Standings(Config()).reached());
}

TEST(Standings, TextIsWholeAndOfTheSameMetric) {
  Standings s(config("max", 3));
  for (int64_t step = 1; step <= 4; ++step) s.look(step, measured(0.1 * static_cast<double>(step)));
  Standings again(config("max", 2));
  again.restore(s.text(), "here");
  EXPECT_EQ(best_of(again), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(again.best().front().value, 0.4);
  Standings reversed(config("min", 2));
  reversed.restore(s.text(), "here");
  EXPECT_TRUE(reversed.best().empty());
  EXPECT_THROW(reversed.restore("{\"best\":1}", "here"), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
