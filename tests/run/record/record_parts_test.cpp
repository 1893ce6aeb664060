// What a run records of programs and prompts that it does not know: names of reward parts without end, and
// questions in a template.

#include <gtest/gtest.h>

#include "src/core/file.h"
#include "src/run/record/metrics/part_names.h"
#include "src/run/record/sample_lines.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

using Metrics = std::map<std::string, double>;

/// Metrics of a step whose programs name parts from `first` on.
Metrics step_with(int first, int count) {
  Metrics metrics{{"critic/score/mean", 1}, {"reward/parts_left_out", 3}};
  for (int i = first; i < first + count; ++i) metrics[fmt::format("reward/p/{:04d}/mean", i)] = i;
  return metrics;
}

TEST(PartNames, OfARunAreSoManyAndTheRestIsCounted) {
  PartNames names;
  const int most = static_cast<int>(kMaxPartNamesOfARun);
  Metrics first = step_with(0, most - 10), grows = step_with(most - 20, 30), later = step_with(most, 5);
  EXPECT_EQ(names.limit(first), "");
  EXPECT_EQ(first, step_with(0, most - 10));
  EXPECT_NE(names.limit(grows).find(fmt::format("more than {} parts", most)), std::string::npos);
  EXPECT_EQ(grows.at("reward/parts_left_out"), 3 + 10);
  EXPECT_TRUE(grows.contains(fmt::format("reward/p/{:04d}/mean", most - 1)));
  EXPECT_FALSE(grows.contains(fmt::format("reward/p/{:04d}/mean", most)));
  EXPECT_EQ(names.limit(later), "") << "said once";
  EXPECT_EQ(later, (Metrics{{"critic/score/mean", 1}, {"reward/parts_left_out", 3 + 5}}));
}

TEST(PartNames, ANameIsSaidInOneLine) {
  PartNames names;
  Metrics all = step_with(0, static_cast<int>(kMaxPartNamesOfARun));
  EXPECT_EQ(names.limit(all), "");
  Metrics one_more{{"reward/\n\x1b" + std::string(1000, 'x') + "/mean", 1}};
  const std::string said = names.limit(one_more);
  EXPECT_NE(said.find("xxx"), std::string::npos) << said;
  EXPECT_EQ(said.find_first_of("\n\x1b"), std::string::npos) << said;
  EXPECT_LT(said.size(), 500u);
}

/// A run that goes on keeps the names that it would have kept.
TEST(PartNames, OfARunThatGoesOnAreThoseOfItsMetrics) {
  const TempDir folder;
  const std::string file = folder / "metrics.jsonl";
  PartNames whole;
  std::string text;
  for (int step = 0; step < 6; ++step) {
    Metrics metrics = step_with(29 * step, 40), again = metrics;
    PartNames resumed(file);
    whole.limit(metrics);
    resumed.limit(again);
    EXPECT_EQ(again, metrics) << step;
    text += "{\"step\":" + std::to_string(step + 1);
    for (const auto& [name, value] : metrics) text += fmt::format(",\"{}\":{}", name, value);
    write_file_atomic(file, text += "}\n");
  }
}

/// Metrics of a step with so many domains from `first` on, and one whose name begins with another's.
Metrics domains_from(int first, int count) {
  Metrics metrics{{"critic/score/mean", 1}};
  for (int i = first; i < first + count; ++i)
    for (const char* of : {"responses", "score/mean", "response_length/clip_ratio", "reward/math/mean"})
      metrics[fmt::format("domain/d{:04d}/{}", i, of)] = i;
  return metrics;
}

TEST(DomainNames, OfARunAreSoManyAndTheRestIsCounted) {
  PartNames names;
  const int most = static_cast<int>(kMaxDomainsOfARun);
  Metrics first = domains_from(0, most - 1);
  const std::string inner = fmt::format("domain/d{:04d}/score", most);  // its name begins with one left out
  first[inner + "/responses"] = 2, first[inner + "/score/mean"] = 3;
  const Metrics all = first;
  EXPECT_EQ(names.limit(first), "");
  EXPECT_EQ(first, all);
  Metrics later = domains_from(most - 1, 3);
  later[inner + "/responses"] = 2, later[inner + "/score/mean"] = 3;
  EXPECT_NE(names.limit(later).find(fmt::format("more than {} domains", most)), std::string::npos);
  EXPECT_EQ(later, (Metrics{{"critic/score/mean", 1},
                            {"domain/left_out", 3},
                            {inner + "/responses", 2},
                            {inner + "/score/mean", 3}}));
  Metrics again = domains_from(most, 1), known = domains_from(3, 2);
  EXPECT_EQ(names.limit(again), "") << "said once";
  EXPECT_EQ(again.at("domain/left_out"), 1);
  names.limit(known);
  EXPECT_EQ(known, domains_from(3, 2));
}

TEST(DomainNames, OfARunThatGoesOnAreThoseOfItsMetrics) {
  const TempDir folder;
  const std::string file = folder / "metrics.jsonl";
  PartNames whole;
  std::string text;
  for (int step = 0; step < 4; ++step) {
    Metrics metrics = domains_from(40 * step, 50), again = metrics;
    PartNames resumed(file);
    whole.limit(metrics);
    resumed.limit(again);
    EXPECT_EQ(again, metrics) << step;
    text += "{\"step\":" + std::to_string(step + 1);
    for (const auto& [name, value] : metrics) text += fmt::format(",\"{}\":{}", name, value);
    write_file_atomic(file, text += "}\n");
  }
}

TEST(SampleLines, ShowTheQuestionNotTheTemplate) {
  Group group;
  Trajectory& t = group.samples.emplace_back();
  t.prompt = "<system>Be brief.</>\n<user>What is 2+2?</>\n<assistant>";
  t.response.text = "4", t.answer = "4";
  const std::vector<Group> groups{group};
  EXPECT_EQ(sample_lines(groups, {"<user>", "</>\n<assistant>"}, 7, 1),
            std::vector<std::string>{R"(sample of step 7: "What is 2+2?" -> "4", answer "4", reward 0)"});
  EXPECT_NE(sample_lines(groups, {}, 7, 1).front().find("Be brief"), std::string::npos);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
