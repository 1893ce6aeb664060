// The parts of `temper report`: what thinning keeps, ticks, escaping, tables, events, what is read of a
// folder.

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <set>

#include "src/core/file.h"
#include "src/run/report/axis.h"
#include "src/run/report/chart.h"
#include "src/run/report/chart_groups.h"
#include "src/run/report/history/metric_table.h"
#include "src/run/report/history/run_events.h"
#include "src/run/report/history/run_samples.h"
#include "src/run/report/html.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<int64_t> steps_to(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t s = 1; s <= last; ++s) steps.push_back(s);
  return steps;
}

TEST(Thinning, KeepsTheExtremesOfEveryColumn) {
  std::mt19937 random(3);
  std::vector<double> values(10000);
  for (double& value : values) value = std::normal_distribution<>()(random);
  values[4321] = 1000;
  values[8765] = -1000;
  const std::vector<int64_t> steps = steps_to(10000);
  const Curve thin = thinned(curve_of(steps, values), 1, 10000, 100);
  ASSERT_EQ(thin.size(), 1u);
  EXPECT_LE(thin[0].size(), 202u);
  for (int column = 0; column < 100; ++column) {
    double low = INFINITY, high = -INFINITY, thin_low = INFINITY, thin_high = -INFINITY;
    const auto in_column = [&](double step) { return static_cast<int>((step - 1) / 9999 * 100) == column; };
    for (size_t i = 0; i < values.size(); ++i)
      if (in_column(static_cast<double>(steps[i])))
        low = std::min(low, values[i]), high = std::max(high, values[i]);
    for (const CurvePoint& point : thin[0])
      if (in_column(point.step))
        thin_low = std::min(thin_low, point.value), thin_high = std::max(thin_high, point.value);
    EXPECT_EQ(thin_low, low) << column;
    EXPECT_EQ(thin_high, high) << column;
  }
  for (size_t i = 1; i < thin[0].size(); ++i) EXPECT_LT(thin[0][i - 1].step, thin[0][i].step);
  EXPECT_EQ(thin[0].front().step, 1);
  EXPECT_EQ(thin[0].back().step, 10000);
}

TEST(Thinning, StepsWithoutAValueAreAGap) {
  const std::vector<int64_t> steps = steps_to(8);
  const Curve curve = curve_of(steps, std::vector<double>{1, 2, kNan, 4, 5, INFINITY, kNan, 8});
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_EQ(curve[0].size(), 2u);
  EXPECT_EQ(curve[1].front().step, 4);
  EXPECT_EQ(curve[2].front().value, 8);
  // What is measured at every second step alone is one curve.
  EXPECT_EQ(curve_of(steps, std::vector<double>{kNan, 2, kNan, 4, kNan, 6, kNan, 8}).size(), 1u);
  EXPECT_TRUE(curve_of(steps, std::vector<double>(8, kNan)).empty());
}

TEST(Thinning, BinsAreMeans) {
  const std::vector<int64_t> steps = steps_to(6);
  const std::vector<double> means =
      bin_means(steps, std::vector<double>{1, 3, kNan, 5, kNan, kNan}, 0.5, 6.5, 3);
  ASSERT_EQ(means.size(), 3u);
  EXPECT_EQ(means[0], 2);
  EXPECT_EQ(means[1], 5);
  EXPECT_TRUE(std::isnan(means[2]));
}

TEST(Axis, TicksAreNiceAndInside) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const double middle = std::normal_distribution<>()(random) * std::pow(10.0, i % 12 - 6);
    const double half = std::abs(std::normal_distribution<>()(random)) * std::pow(10.0, i % 7 - 3);
    const Axis axis = nice_axis(middle - half, middle + half, 4, true);
    ASSERT_GE(axis.ticks.size(), 2u) << middle << " " << half;
    EXPECT_LE(axis.ticks.size(), 9u) << middle << " " << half;
    const double room = (axis.high - axis.low) * 1e-6;
    EXPECT_LE(axis.low, middle - half + room);
    EXPECT_GE(axis.high, middle + half - room);
    for (const double tick : axis.ticks) EXPECT_TRUE(tick >= axis.low - room && tick <= axis.high + room);
  }
  EXPECT_EQ(nice_axis(0, 1, 4, true).ticks, (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_LT(nice_axis(3, 3, 4, true).low, 3);
  EXPECT_EQ(step_axis(7, 7, 5).ticks, std::vector<double>{7});
  for (const double tick : step_axis(1, 3, 5).ticks) EXPECT_EQ(tick, std::round(tick));
  for (const double wild : {1e308, -1e308, 5e-324})
    for (const double tick : nice_axis(-wild, wild > 0 ? wild : 0, 4, true).ticks)
      EXPECT_TRUE(std::isfinite(tick));
}

TEST(Axis, ValuesArePutShort) {
  const std::pair<double, const char*> cases[] = {{0, "0"},        {1, "1"},          {0.25, "0.25"},
                                                  {12.5, "12.5"},  {-0.5, "-0.5"},    {9999, "9999"},
                                                  {10000, "10k"},  {12345, "12.35k"}, {1.5e6, "1.5M"},
                                                  {2e-6, "2e-06"}, {kNan, "–"},       {0.88671875, "0.8867"},
                                                  {1e20, "1e+20"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(short_value(value), text);
}

TEST(Html, NothingBecomesMarkup) {
  EXPECT_EQ(html("<script>alert('x')</script> & \"y\""),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;");
  EXPECT_EQ(html("a\x1b[2J\xff\u202e"), "a\\x1b[2J\\xff\\u202e");
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(html(all).find_first_of("<>\"'\r\x1b"), std::string::npos);
}

TEST(Html, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(html_of_at_most("abc", 3), "abc");
  EXPECT_EQ(html_of_at_most("ab\u00e4cd", 3).substr(0, 2), "ab");
  EXPECT_NE(html_of_at_most("ab\u00e4cd", 3).find("4 bytes more"), std::string::npos);
  EXPECT_EQ(html_of_at_most("ab\u00e4cd", 3).find("\\x"), std::string::npos);
}

TEST(Chart, DrawsGapsDotsAndEscapesNames) {
  LineChart chart{"a<b", "x&y", {}, {{1, 3}}, 100};
  chart.curves.push_back({1, "<evil>", {{{1, 0}, {2, 1}}, {{4, 0.5}}}});
  const std::string svg = chart_svg(chart, {1, 4});
  EXPECT_EQ(svg.find("<evil>"), std::string::npos);
  EXPECT_NE(svg.find("<title>&lt;evil&gt;</title>"), std::string::npos);
  EXPECT_NE(svg.find("x&amp;y"), std::string::npos);
  EXPECT_NE(svg.find("resumed from step 3"), std::string::npos);
  const size_t path = svg.find("<path class=c d=\"");
  const std::string drawn = svg.substr(path, svg.find("\"/>", path) - path);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'M'), 2) << "a gap begins a new piece: " << drawn;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Chart, LabelsOfCloseValuesDiffer) {
  LineChart chart{"a", "", {}, {}, 100};
  chart.curves.push_back({0, "r", {{{1, 1.00001}, {2, 1.00002}}}});
  const std::string svg = chart_svg(chart, {1, 2});
  std::set<std::string> labels;
  size_t count = 0;
  for (size_t at = 0; (at = svg.find("class=y>", at)) != std::string::npos; ++count) {
    at += 8;
    labels.insert(svg.substr(at, svg.find('<', at) - at));
  }
  EXPECT_GE(count, 2u);
  EXPECT_EQ(labels.size(), count);
}

TEST(ChartGroups, HaveEveryKeyOnce) {
  const std::vector<std::string> keys{
      "critic/score/mean", "train/loss",      "actor/grad_norm",  "timing_s/gen",
      "perf/throughput",   "my/own",          "val/a/score/mean", "perf/peak_gb/train/host",
      "reward/exact/mean", "critic/score/max"};
  std::multiset<std::string> placed;
  for (const ChartGroup& group : chart_groups(keys))
    for (const ChartMetric& metric : group.metrics) placed.insert(metric.key);
  EXPECT_EQ(placed.size(), keys.size() - 1);
  for (const std::string& key : keys)
    EXPECT_EQ(placed.count(key), key.starts_with("timing_s/") ? 0u : 1u) << key;
  EXPECT_EQ(chart_groups(keys).front().metrics.front().key, "val/a/score/mean");
  EXPECT_EQ(chart_groups(keys).back().title, "Other metrics");
}

TEST(MetricTable, HolesDamageAndALineBeingWritten) {
  const TempDir folder;
  write_file_atomic(folder / "m.jsonl",
                    "{\"step\":1,\"a\":0.1,\"b\":null}\nnonsense\n{\"step\":3,\"a\":\"text\",\"b\":2}\n"
                    "{\"step\":1,\"a\":0.30000000000000004}\n[]\n{\"step\":4,\"a\":1");
  const MetricTable table = read_metric_table(folder / "m.jsonl");
  EXPECT_EQ(table.steps, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(table.unreadable, (std::vector<int64_t>{2, 5})) << "the last one is being written";
  EXPECT_EQ(metrics_csv({{"r", &table}}), "step,a,b\n1,0.30000000000000004,\n3,,2.0\n");
  EXPECT_EQ(
      metrics_csv({{"r,1", &table}, {"s", &table}}),
      "run,step,a,b\n\"r,1\",1,0.30000000000000004,\n\"r,1\",3,,2.0\ns,1,0.30000000000000004,\ns,3,,2.0\n");
  EXPECT_TRUE(read_metric_table(folder / "absent").steps.empty());
}

TEST(MetricTable, StepsBeyondAllReasonAndLongLinesAreCounted) {
  const TempDir folder;
  std::string text =
      "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2,\"text\":\"" + std::string(17 << 20, 'x') + "\"}\n";
  for (const char* step : {"9223372036854775807", "18446744073709551615", "1000000000001", "-1", "0", "1e3"})
    text += std::string("{\"step\":") + step + ",\"a\":1}\n";
  write_file_atomic(folder / "m.jsonl", text + "{\"step\":1000000000000,\"a\":3}\n");
  const MetricTable table = read_metric_table(folder / "m.jsonl");
  EXPECT_EQ(table.steps, (std::vector<int64_t>{1, 1'000'000'000'000}));
  EXPECT_EQ(table.unreadable, (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8}));
}

TEST(MetricTable, HasSoManyColumns) {
  const TempDir folder;
  std::string text;
  for (size_t i = 0; i < kMaxColumns + 30; i += 10) {
    text += fmt::format("{{\"step\":{}", i + 1);
    for (size_t k = i; k < i + 10; ++k) text += fmt::format(",\"k{}\":{}", k, k);
    text += "}\n";
  }
  write_file_atomic(folder / "m.jsonl", text);
  const MetricTable table = read_metric_table(folder / "m.jsonl");
  EXPECT_EQ(table.columns.size(), kMaxColumns);
  EXPECT_EQ(table.values_left_out, 30);
  EXPECT_EQ(table.steps.size(), kMaxColumns / 10 + 3);
}

TEST(MetricTable, RowsAreSortedWhateverTheirOrder) {
  const TempDir folder;
  write_file_atomic(
      folder / "m.jsonl",
      "{\"step\":3,\"a\":3}\n{\"step\":1,\"b\":1}\n{\"step\":2,\"a\":2}\n{\"step\":3,\"b\":4}\n");
  const MetricTable table = read_metric_table(folder / "m.jsonl");
  EXPECT_EQ(metrics_csv({{"r", &table}}), "step,a,b\n1,,1.0\n2,2.0,\n3,,4.0\n");
}

/// What opens the table must not run what it says, nor a terminal that shows it.
TEST(MetricTable, NamesOfATableAreTextAlone) {
  MetricTable table;
  table.steps = {1};
  for (const char* key : {"=1+1", "@x", "-x", "a\x1b[2J", "b\nc\td", "\"q\",r"}) table.columns[key] = {1};
  const std::string head = "step,\"\"\"q\"\",r\",'-x,'=1+1,'@x,a\\x1b[2J,b\\x0ac\\x09d\n";
  EXPECT_EQ(metrics_csv({{"r", &table}}).substr(0, head.size()), head);
  EXPECT_NE(metrics_csv({{"=cmd", &table}, {"s", &table}}).find("\n'=cmd,1,"), std::string::npos);
}

/// Files of a run folder that lead elsewhere, or are none.
TEST(RunFiles, NothingOutsideOfTheFolderIsRead) {
  const TempDir outside, folder;
  write_file_atomic(outside / "secret.jsonl", "{\"step\":1,\"secret\":1}\n");
  write_file_atomic(folder / "config.toml", "nonsense");
  make_directories(folder / "rollouts");
  for (const char* name : {"metrics.jsonl", "events.jsonl", "rollouts/step-000001.jsonl", "config-1.toml"})
    std::filesystem::create_symlink(outside / "secret.jsonl", folder / name);
  std::filesystem::create_directory_symlink(outside.path(), folder / "logs");
  const RunHistory run = read_run_history(folder.path());
  EXPECT_TRUE(run.metrics.columns.empty());
  EXPECT_TRUE(run.samples.empty());
  std::string notes;
  for (const std::string& note : run.notes) notes += note + "\n";
  for (const char* name :
       {"metrics.jsonl", "events.jsonl", "rollouts/step-000001.jsonl", "config-1.toml", "logs"})
    EXPECT_NE(notes.find(join_path(folder.path(), name) + " is not read: a link leads out of the run folder"),
              std::string::npos)
        << name << "\n"
        << notes;
}

TEST(RunFiles, LinksWithinTheFolderAreFollowedAndAPipeIsNotWaitedFor) {
  const TempDir folder;
  write_file_atomic(folder / "elsewhere.jsonl", "{\"step\":1,\"a\":1}\n");
  std::filesystem::create_symlink("elsewhere.jsonl", folder / "metrics.jsonl");
  ASSERT_EQ(::mkfifo((folder / "events.jsonl").c_str(), 0600), 0);
  const RunHistory run = read_run_history(folder.path());
  EXPECT_EQ(run.metrics.steps, std::vector<int64_t>{1});
  ASSERT_FALSE(run.notes.empty());
  EXPECT_NE(run.notes.front().find("events.jsonl is not read: it is no file"), std::string::npos);
}

TEST(RunSamples, WhatCannotBeReadIsCountedAndTheRestIsShown) {
  const TempDir folder;
  make_directories(folder / "rollouts");
  const std::string sample =
      R"("prompt_tokens":[1],"response_tokens":[2],"prompt":"p","response":"r","answer":"a")";
  write_file_atomic(folder / "rollouts/step-000001.jsonl",
                    "{\"group\":0,\"reward\":1," + sample + "}\nnonsense\n{\"group\":0,\"reward\":0," +
                        sample + "}\n" + "{\"group\":1,\"x\":\"" + std::string(17 << 20, 'x') + "\"}\n");
  write_file_atomic(folder / "rollouts/step-000002-copy.jsonl", "");
  std::vector<std::string> notes;
  const std::vector<StepSamples> steps = read_samples(folder.path(), notes);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].samples.size(), 2u) << "the best and the worst";
  EXPECT_NE(steps[0].defect.find("2 lines cannot be read; line 2"), std::string::npos) << steps[0].defect;
  EXPECT_FALSE(steps[0].whole) << "it has more bytes than are read";
  EXPECT_TRUE(notes.empty());
}

TEST(RunEvents, AreTakenFromTheirFile) {
  const auto event = [](const std::string& rest) {
    return event_of(R"({"time":"2026-01-02T03:04:05+01:00","event":)" + rest + "}");
  };
  const std::optional<RunEvent> start = event(R"("start","ranks":2,"dtype":"fp32")");
  ASSERT_TRUE(start);
  EXPECT_EQ(start->kind, "start");
  EXPECT_EQ(start->time, "2026-01-02 03:04:05");
  EXPECT_EQ(start->text, "ranks 2, dtype fp32");
  EXPECT_EQ(event(R"("resume","step":12,"path":"runs/x")").value().step, 12);
  EXPECT_EQ(event(R"("changed","key":"run.steps","before":"1","after":"2")").value().text,
            "run.steps 1 -> 2");
  EXPECT_EQ(event(R"("stop","step":4,"reason":"SIGTERM")").value().text, "step 4, reason SIGTERM");
  EXPECT_EQ(event(R"("end","step":4)").value().kind, "end");
  for (const char* left_out : {R"("checkpoint","step":4)", R"("export","step":4)", R"("<b>")"})
    EXPECT_FALSE(event(left_out)) << left_out;
  for (const char* damaged : {"1", "null", R"("resume")", R"("resume","step":"x")", R"("changed","key":1)"})
    EXPECT_FALSE(event(damaged)) << damaged;
  for (const char* damaged : {"", "[]", "1", R"({"event":"start"})", R"({"time":"x","event":"start"})",
                              R"({"time":1,"event":"start"})", R"({"time":"2026-01-02T03:04:0)"})
    EXPECT_FALSE(event_of(damaged)) << damaged;
}

TEST(RunEvents, TroubleIsTakenFromTheLog) {
  const auto kind = [](const std::string& rest) {
    const std::optional<RunEvent> event = trouble_of("2026-01-02T03:04:05.678 rank 0 " + rest);
    return event ? event->kind : "";
  };
  EXPECT_EQ(kind("warning no signal"), "warning");
  EXPECT_EQ(kind("error bad"), "error");
  EXPECT_EQ(kind("critical bad"), "error");
  EXPECT_EQ(kind("info step 3/9  score 0.1"), "");
  EXPECT_EQ(trouble_of("no log line at all"), std::nullopt);
  EXPECT_EQ(trouble_of("2026-01-02T03:04:05.678 rank 0 error a b")->text, "a b");
}

/// The log warns of changes, too; the folder of an older version has only the log.
TEST(RunEvents, AreInOrderAndSaidOnce) {
  const TempDir folder;
  make_directories(folder / "logs");
  write_file_atomic(folder / "logs/rank-0000.log",
                    "2026-01-02T03:04:04.100 rank 0 warning changed since: run.steps 1 -> 2\n"
                    "2026-01-02T03:04:05.900 rank 0 info 12 parameters, 2 ranks\n"
                    "2026-01-02T03:04:06.000 rank 0 warning slow: disk\n");
  RunHistory older;
  older.folder = folder.path();
  read_events(older);
  ASSERT_EQ(older.events.size(), 2u);
  EXPECT_EQ(older.events[0].text, "changed since: run.steps 1 -> 2");
  ASSERT_EQ(older.notes.size(), 1u);
  EXPECT_NE(older.notes[0].find("no events.jsonl"), std::string::npos);
  write_file_atomic(folder / "events.jsonl",
                    "{\"time\":\"2026-01-02T03:04:04+00:00\",\"event\":\"changed\",\"key\":\"run.steps\","
                    "\"before\":\"1\",\"after\":\"2\"}\n{\"time\":\"2026-01\n"
                    "{\"time\":\"2026-01-02T03:04:07+00:00\",\"event\":\"end\",\"step\":2}\n{\"time\"");
  RunHistory run;
  run.folder = folder.path();
  read_events(run);
  EXPECT_TRUE(run.notes.empty());
  ASSERT_EQ(run.events.size(), 3u);
  EXPECT_EQ(run.events[0].kind, "changed");
  EXPECT_EQ(run.events[1].text, "slow: disk");
  EXPECT_EQ(run.events[2].kind, "end");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
