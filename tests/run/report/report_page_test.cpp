// The page of `temper report`: what it opens with, which metrics it draws, what a pointer is told, its size.

#include <cmath>
#include <random>

#include "src/core/file.h"
#include "src/core/process/host.h"
#include "src/run/report/chart.h"
#include "src/run/report/history/run_events.h"
#include "src/run/report/history/run_state.h"
#include "src/run/report/mean_curve.h"
#include "src/run/report/metric_cards.h"
#include "src/run/report/page.h"
#include "src/run/report/scores.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++found;
  return found;
}

bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

std::vector<int64_t> steps_to(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t s = 1; s <= last; ++s) steps.push_back(s);
  return steps;
}

RunHistory run_of(const std::string& name, std::map<std::string, std::vector<double>> columns) {
  RunHistory run;
  run.name = run.folder = name;
  run.metrics.steps = steps_to(std::ssize(columns.begin()->second));
  run.metrics.columns = std::move(columns);
  return run;
}

TEST(MeanCurve, IsTheMeanOfNeighbours) {
  std::vector<CurvePoint> points;
  for (int s = 1; s <= 5; ++s) points.push_back({1.0 * s, 1.0 * s * s});
  const double expected[] = {2.5, 14.0 / 3, 29.0 / 3, 50.0 / 3, 20.5};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(neighbour_mean(points, i, 3), expected[i]);
    EXPECT_EQ(neighbour_mean(points, i, 1), points[i].value);
  }
  EXPECT_DOUBLE_EQ(neighbour_mean(std::vector<CurvePoint>{{1, 1e308}, {2, 1e308}, {3, 1e308}}, 1, 3), 1e308);
  EXPECT_EQ(mean_window(14), 1) << "too few";
  for (const size_t count : {15u, 100u, 5000u}) EXPECT_EQ(mean_window(count) % 2, 1) << count;
  std::vector<int64_t> steps = steps_to(1000);
  const Curve means = mean_curve(curve_of(steps, std::vector<double>(1000, 7.0)), 100);
  ASSERT_EQ(means.size(), 1u);
  EXPECT_LE(means[0].size(), 102u);
  EXPECT_EQ(means[0].back().step, 1000);
  EXPECT_EQ(means[0].back().value, 7);
}

TEST(Scores, AreFirstLastAndBest) {
  MetricTable table;
  table.steps = steps_to(4);
  table.columns = {{"val/a/score/mean", {kNan, 0.5, 0.9, 0.7}},
                   {"val/a/loss", {1, 2, 3, 4}},
                   {"val/b/loss", {3, 2, kNan, 2.5}},
                   {"train/loss", {4, 3, 2, 1}}};
  const std::vector<Score> scores = scores_of(table);
  ASSERT_EQ(scores.size(), 3u) << "the loss of a set with a score is not asked for";
  EXPECT_EQ(scores[0].key, "val/a/score/mean");
  EXPECT_EQ(scores[0].first.step, 2);
  EXPECT_EQ(scores[0].last.value, 0.7);
  EXPECT_EQ(scores[0].best.value, 0.9);
  EXPECT_EQ(scores[0].best.step, 3);
  EXPECT_EQ(scores[1].key, "val/b/loss");
  EXPECT_EQ(scores[1].best.value, 2) << "the less the better";
  EXPECT_EQ(scores[2].best.step, 4);
  table.columns["critic/score/mean"] = {0, 1, 0, 1};
  EXPECT_EQ(scores_of(table).back().key, "critic/score/mean");
}

/// A noisy score is judged by its means: one lucky step is no best one.
TEST(Scores, OfTrainingAreMeans) {
  MetricTable table;
  table.steps = steps_to(60);
  std::vector<double>& column = table.columns["critic/score/mean"];
  for (int s = 0; s < 60; ++s) column.push_back(s < 30 ? 0 : 0.5);
  column[10] = 1;
  const Score score = scores_of(table).front();
  EXPECT_EQ(score.window, mean_window(60));
  EXPECT_EQ(score.best.value, 0.5);
  EXPECT_GT(score.best.step, 30);
}

TEST(MetricCards, ConstantAndEqualCurvesAreNotDrawn) {
  const RunHistory a = run_of("a", {{"critic/score/mean", {0, 0.5, 1}},
                                    {"critic/rewards/mean", {0, 0.5, 1}},
                                    {"actor/lr", {2, 2, 2}},
                                    {"actor/kl_loss", {0, 0, 0}},
                                    {"actor/entropy", {kNan, 1, 2}},
                                    {"val/x/score/mean", {kNan, 0.5, kNan}},
                                    {"actor/loss", {3, 1, 2}}});
  RunHistory b = a;
  b.name = "b";
  b.metrics.columns["actor/lr"] = {3, 3, 3};
  const MetricCards cards = metric_cards({a, b});
  EXPECT_EQ(cards.drawn, 3u);
  ASSERT_EQ(cards.groups.front().cards.size(), 1u);
  EXPECT_EQ(cards.groups.front().cards[0].metric.key, "critic/score/mean");
  EXPECT_EQ(cards.groups.front().cards[0].equal, std::vector<std::string>{"critic/rewards/mean"});
  const std::string page = report_page({a, b});
  EXPECT_EQ(count(page, "<figure>"), 3u);
  EXPECT_TRUE(has(page, "The same in every step: <code>actor/lr</code> 2 / 3"));
  EXPECT_TRUE(has(page, "0 in every step: <code>actor/kl_loss</code>"));
  EXPECT_TRUE(has(page, "At one step alone: <code>val/x/score/mean</code> 0.5 / 0.5"));
  EXPECT_TRUE(has(page, "the same: <code>critic/rewards/mean</code>"));
  b.metrics.columns["critic/rewards/mean"] = {0, 0.5, 2};
  EXPECT_EQ(metric_cards({a, b}).drawn, 4u) << "equal in one run alone";
}

TEST(Chart, TellsItsValuesToThePointer) {
  LineChart chart{"a", "", {}, {}, 100};
  chart.curves.push_back({0, "r", {{{1, 0.5}, {2, 0.25}}, {{5, 0.75}}}});
  const std::string svg = chart_svg(chart, {1, 5});
  for (const char* told : {">step 1: 0.5<", ">step 2: 0.25<", ">step 5: 0.75<"})
    EXPECT_TRUE(has(svg, told)) << svg;
  EXPECT_EQ(count(svg, "<g class=h>"), 3u);
  chart.readouts = 2;
  const std::string few = chart_svg(chart, {1, 5});
  EXPECT_EQ(count(few, "<g class=h>"), 2u);
  EXPECT_TRUE(has(few, ">steps 1 to 2: 0.375 (0.25 to 0.5)<")) << few;
  chart.readouts = 60;
  chart.curves.push_back({1, "<s>", {{{1, 8}}}});
  const std::string two = chart_svg(chart, {1, 5});
  EXPECT_TRUE(has(two, "class=r1>8 &lt;s&gt;</tspan>")) << two;
}

TEST(Chart, MeansStandOverTheValues) {
  LineChart chart{"a", "", {}, {}, 100};
  std::vector<double> values;
  for (int s = 0; s < 40; ++s) values.push_back(s % 2);
  const std::vector<int64_t> steps = steps_to(40);
  chart.curves.push_back({0, "r", curve_of(steps, values)});
  const std::string svg = chart_svg(chart, {1, 40});
  EXPECT_LT(svg.find("<path class=\"c raw\""), svg.find("<path class=c "));
  EXPECT_EQ(count(svg, "<path class=c "), 1u);
}

struct Folder : ::testing::Test {
  /// A run whose owner the lock names.
  RunHistory of_owner(const std::string& owner, const std::string& events) {
    write_file_atomic(dir / "owner.lock", owner);
    write_file_atomic(dir / "events.jsonl", events);
    write_file_atomic(dir / "metrics.jsonl", "{\"step\":1,\"perf/time_per_step\":2}\n");
    return read_run_history(dir.path());
  }
  static std::string line(const std::string& rest) {
    return "{\"time\":\"2026-01-02T03:04:05+00:00\",\"event\":" + rest + "}\n";
  }
  const TempDir dir;
};

TEST_F(Folder, ItsStateIsThatOfItsLastEventOrOfItsOwner) {
  const std::string start = line("\"start\",\"ranks\":2"), here = "host " + this_host() + ", pid ";
  const std::string me = here + std::to_string(::getpid());
  EXPECT_EQ(of_owner(me, start).state, RunState::running);
  EXPECT_EQ(of_owner(here + "999999999", start).state, RunState::lost);
  EXPECT_EQ(of_owner("", start).state, RunState::running) << "its file was written just now";
  EXPECT_EQ(of_owner("host elsewhere, pid 1", start).state, RunState::running);
  EXPECT_EQ(of_owner(me, start + line("\"stop\",\"step\":1,\"reason\":\"SIGTERM\"")).state,
            RunState::stopped);
  EXPECT_EQ(of_owner(me, start + line("\"end\",\"step\":1")).state, RunState::ended);
  EXPECT_EQ(of_owner(me, start + line("\"end\",\"step\":1") + line("\"resume\",\"step\":1")).state,
            RunState::running);
  EXPECT_EQ(of_owner(me, "").state, RunState::running) << "no event is on record";
}

TEST_F(Folder, ThePageOpensWithWhatIsTrainedOnWhatAndHowItEnded) {
  const std::string start = line(
      "\"start\",\"ranks\":2,\"dtype\":\"fp32\",\"device\":\"cpu\",\"parameters\":1234567,\"lines\":6000");
  RunHistory run = of_owner("", start + line("\"stop\",\"step\":45,\"reason\":\"SIGTERM\""));
  run.config.emplace();
  run.config->run.steps = 120;
  run.config->model.path = "models/<m>";
  run.config->algorithm.name = "grpo";
  run.config->data.train = {{"data/a.jsonl"}};
  run.config->rollout.prompts_per_step = 64, run.config->rollout.samples_per_prompt = 8;
  run.metrics.steps = steps_to(45);
  run.metrics.columns = {{"perf/time_per_step", std::vector<double>(45, 2.0)},
                         {"critic/score/mean", std::vector<double>(45, 0.5)},
                         {"val/x/score/mean", std::vector<double>(45, 0.25)}};
  const std::string page = report_page({run});
  const std::string head = page.substr(0, page.find("<nav>"));
  for (const char* said :
       {"<b>grpo</b> on <b>models/&lt;m&gt;</b> (1,234,567 parameters), with <b>data/a.jsonl</b> (6,000 "
        "lines)",
        "stopped</span>", "by SIGTERM at step 45 of 120, about 2m30s left; the same command goes on",
        "2 on cpu, fp32", "64 prompts x 8 samples", "2026-01-02 03:04:05", "<dd>1m30s</dd>",
        "val/x/score/mean", "first 0.5"})
    EXPECT_TRUE(has(head, said)) << said << "\n" << head;
  run.state = RunState::running;
  EXPECT_TRUE(has(report_page({run}), "step 45 of 120, about 2m30s left<"));
  run.state = RunState::lost;
  EXPECT_TRUE(has(report_page({run}), "at step 45 of 120: its process is gone without a word"));
  run.events.push_back({"error", "2026-01-02 03:05:05", "temper: the disk is full\n  where: x", 0});
  EXPECT_TRUE(
      has(report_page({run}), "at step 45 of 120: temper: the disk is full; the same command goes on"));
}

TEST(ReportPage, OfSeveralRunsHasAColumnForEach) {
  RunHistory a = run_of("a", {{"critic/score/mean", {0.1, 0.2}}}),
             b = run_of("b", {{"critic/score/mean", {0.3, 0.4}}});
  a.config.emplace(), b.config.emplace();
  a.config->optimizer.lr = 1e-6, b.config->optimizer.lr = 2e-6;
  const std::string page = report_page({a, b});
  EXPECT_TRUE(has(page, "2 runs side by side"));
  EXPECT_TRUE(has(page, "The runs differ in 1 keys"));
  EXPECT_TRUE(
      has(page, "<td class=k>optimizer.lr</td><td class=\"w k\">1e-06</td><td class=\"w k\">2e-06</td>"))
      << page;
  EXPECT_TRUE(has(page, "<b>0.2</b> <span class=soft>first 0.1"));
  EXPECT_TRUE(has(page, "<b>0.4</b> <span class=soft>first 0.3"));
}

TEST(ReportPage, SamplesShowTheQuestionNotTheTemplate) {
  RunHistory run = run_of("a", {{"critic/score/mean", {0.1}}});
  run.frame = {"<|user|>", "<|end|><|assistant|>"};
  Trajectory t;
  t.prompt = "<|system|>Be brief.<|end|><|user|>What is 2+2?<|end|><|assistant|>";
  t.response.text = "4";
  run.samples.push_back({1, 1, true, {t}, ""});
  const std::string page = report_page({run});
  EXPECT_TRUE(has(page, "<pre>What is 2+2?</pre>"));
  EXPECT_FALSE(has(page, "Be brief"));
}

/// A run of `steps` steps and `keys` metrics, each noise.
RunHistory noisy_run(const std::string& name, int64_t steps, int keys) {
  std::mt19937 random(9);
  RunHistory run;
  run.name = run.folder = name;
  run.metrics.steps = steps_to(steps);
  for (int k = 0; k < keys; ++k)
    for (int64_t s = 0; s < steps; ++s)
      run.metrics.columns[fmt::format("m/{}", k)].push_back(std::normal_distribution<>()(random));
  return run;
}

TEST(ReportPage, StaysSmall) {
  EXPECT_LT(report_page({noisy_run("a", 1000, 90)}).size(), 2'000'000u);
  std::vector<RunHistory> many;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) many.push_back(noisy_run(name, 1000, 90));
  EXPECT_LT(report_page(many).size(), 2'000'000u);
  EXPECT_GT(report_page(many).size(), 500'000u);
}

/// Names without end, of metrics and of all else that a run can name.
TEST(ReportPage, StaysSmallWhateverIsNamed) {
  RunHistory wild = noisy_run("a", 30, 2000);
  wild.metrics.columns[std::string(100'000, 'k')] = wild.metrics.columns.begin()->second;
  wild.notes.assign(1000, std::string(5000, 'n'));
  wild.changes.assign(500, std::vector<ConfigChange>(300, {std::string(50, 'k'), std::string(90, 'b'), "a"}));
  wild.config_text = std::string(500'000, 'c');
  Trajectory t;
  t.response.text = std::string(100'000, 'r');
  for (int p = 0; p < 1000; ++p) t.reward_parts.emplace_back(std::string(1000, 'p'), 1.0);
  for (int s = 0; s < 6; ++s)
    wild.samples.push_back({s, 3, true, std::vector<Trajectory>(6, t), std::string(9000, 'd')});
  const std::string page = report_page({wild});
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_TRUE(has(page, "1880 metrics more than the 120 that are drawn")) << "said and counted";
  EXPECT_TRUE(has(page, "980 notes more are left out"));
  EXPECT_TRUE(has(page, "the 480 oldest changes are left out"));
  EXPECT_TRUE(has(page, "and 988 parts more"));
}

TEST(ReportPage, OfARunWithoutSteps) {
  RunHistory run;
  run.name = "<b>new</b>";
  run.notes = {"no step is done yet"};
  const std::string page = report_page({run});
  EXPECT_NE(page.find("no step is done yet"), std::string::npos);
  EXPECT_EQ(page.find("<b>new"), std::string::npos);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
