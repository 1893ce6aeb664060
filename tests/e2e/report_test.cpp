// `temper report` of a run with two restarts, of two runs, of what is no run, and while a run goes on.

#include <fcntl.h>
#include <sys/file.h>

#include <regex>
#include <set>

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "a"
run.steps = 2
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 2
rollout.max_prompt_tokens = 64
rollout.max_new_tokens = 4
checkpoint.every = 1
checkpoint.export_hf_every = 1
reward.functions = ["exact"]
)";

class Report : public RunFixture {
 protected:
  void SetUp() override {
    std::string data = sums(6);
    data += "{\"prompt\":\"</pre><script>alert(1)</script>\",\"answer\":\"<img src=x>\"}\n";
    data += "{\"prompt\":\"'\\\" onload=x \\u202e\\u001b\",\"answer\":\"]]>--><!--\"}\n";
    prepare(kConfig, data);
    ASSERT_EQ(program_.run("train run.toml"), 0) << output();
    start_ = output();
  }
  std::string start_;  // what the first run said
};

TEST_F(Report, OfARunWithTwoRestarts) {
  ASSERT_EQ(program_.run("train run.toml run.steps=3 optimizer.lr=5e-4 rollout.dump_compress=zstd"), 0)
      << output();
  ASSERT_EQ(program_.run("train run.toml run.steps=4 optimizer.lr=5e-4"), 0) << output();
  ASSERT_EQ(program_.run("report runs/a --csv a.csv"), 0) << output();
  EXPECT_EQ(output(), "a.csv\nruns/a/report.html\n");
  const std::string page = program_.read("runs/a/report.html");
  EXPECT_EQ(times_in(page, "<tr class=start>"), 3);
  EXPECT_EQ(times_in(page, "<tr class=resume>"), 2);
  EXPECT_EQ(times_in(page, "<tr class=end>"), 3);
  EXPECT_EQ(times_in(page, "<tr class=changed>"), 5)
      << "run.steps twice, optimizer.lr, rollout.dump_compress there and back";
  EXPECT_EQ(times_in(page, "changed since"), 0) << "what the log has of them is not said again";
  std::string events;
  for (const Json& line : program_.json_lines("runs/a/events.jsonl"))
    events += line.at("event").get<std::string>() + " ";
  EXPECT_EQ(events,
            "start checkpoint export checkpoint export end changed changed changed resume start checkpoint "
            "export end changed changed resume start checkpoint export end ");
  EXPECT_NE(page.find("resumed from step 2</title>"), std::string::npos);
  EXPECT_EQ(times_in(page, "change 1</h3>"), 1);
  EXPECT_EQ(times_in(page, "change 2</h3>"), 1);
  EXPECT_NE(page.find("<td class=k>optimizer.lr</td>"), std::string::npos);
  EXPECT_NE(page.find("all 4 steps"), std::string::npos);
  EXPECT_EQ(times_in(page, "Step 3 "), 1) << "packed rollouts are shown, too";
  for (const char* chart : {"critic/score/mean", "actor/loss", "actor/entropy", "response_length/mean",
                            "perf/throughput", "perf/cpu_memory_used_gb", "update_actor", "export_hf"})
    EXPECT_NE(page.find(chart), std::string::npos) << chart;
  // Nothing of what a run holds is markup, and the page asks for nothing.
  EXPECT_NE(page.find("&lt;/pre&gt;&lt;script&gt;alert(1)"), std::string::npos);
  for (const char* never : {"<script", "<img", "<!--", "src=\"", "@import", "url("})
    EXPECT_EQ(page.find(never), std::string::npos) << never;
  EXPECT_EQ(times_in(page, "http:") + times_in(page, "https:"), 0);
}

/// A step begins when the one before was trained: what is done between them is in no gap.
TEST_F(Report, TheTimeOfAStepHoldsTheSaveBeforeIt) {
  const std::vector<Json> lines = program_.metrics("a");
  ASSERT_EQ(lines.size(), 2u);
  double parts = 0;
  for (const char* part : {"gen", "update_actor", "save_checkpoint", "export_hf"})
    parts += lines[1].at(std::string("timing_s/") + part).get<double>();
  EXPECT_GE(lines[1].at("timing_s/step").get<double>(), parts) << lines[1].dump();
}

TEST_F(Report, TheTableHasTheBitsOfTheMetrics) {
  program_.shell("rm runs/a/report.html");
  ASSERT_EQ(program_.run("report runs/a --csv a.csv --out a.html"), 0) << output();
  EXPECT_FALSE(exists("runs/a/report.html"));
  const std::string table = program_.read("a.csv");
  const std::vector<Json> lines = program_.metrics("a");
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), static_cast<long>(lines.size()) + 1);
  std::set<std::string> keys;
  for (const Json& line : lines)
    for (const auto& [key, value] : line.items()) keys.insert(key);
  keys.erase("step");
  for (const Json& line : lines) {
    std::string row = "\n" + line["step"].dump();
    for (const std::string& key : keys)
      row += "," + (line.contains(key) && !line[key].is_null() ? dump_json_line(line[key]) : "");
    EXPECT_NE(table.find(row + "\n"), std::string::npos) << row;
  }
}

TEST_F(Report, IsWrittenAtTheEndOfEachRun) {
  EXPECT_NE(start_.find("page runs/a/report.html\n"), std::string::npos) << start_;
  const std::string ended = program_.read("runs/a/report.html");
  for (const char* said : {"ended</span>", "all 2 steps", "1 on cpu, fp32", "(8 lines)"})
    EXPECT_NE(ended.find(said), std::string::npos) << said;
  ASSERT_EQ(program_.run("train run.toml run.steps=100000 run.time_limit=1s checkpoint.every=0 "
                         "checkpoint.export_hf_every=0"),
            75)
      << output();
  const std::string stopped = program_.read("runs/a/report.html");
  for (const char* said :
       {"stopped</span>", "by run.time_limit at step", " of 100000, about ", "resumed from step 2"})
    EXPECT_NE(stopped.find(said), std::string::npos) << said;
}

TEST_F(Report, TheStartSaysWhatIsTrainedOnWhat) {
  const std::regex line(
      "grpo of [^ ]+ \\([0-9,]+ parameters\\) on [^ ]*data.jsonl \\(8 lines\\): steps 1 to 2 of 4 prompts x "
      "2 "
      "samples; 1 rank, [0-9]+ threads? each \\([^\n]*\\), cpu, fp32");
  EXPECT_TRUE(std::regex_search(start_, line)) << start_;
  const Json start = program_.json_lines("runs/a/events.jsonl").front();
  for (const char* key : {"ranks", "device", "dtype", "parameters", "updates", "lines"})
    EXPECT_TRUE(start.contains(key)) << key;
}

/// Files that are not of the run's making are no reason not to go on.
TEST_F(Report, SideFilesDoNotBlockAStart) {
  program_.write("runs/a/config-1.toml", "not [ toml");
  ASSERT_EQ(program_.shell("rm -r runs/a/rollouts && echo x > runs/a/rollouts && mkfifo "
                           "runs/a/tensorboard/events.out.tfevents.1.x"),
            0);
  ASSERT_EQ(program_.run("train run.toml run.steps=3"), 0) << output();
  EXPECT_TRUE(says("runs/a/config-1.toml cannot be read")) << output();
  EXPECT_TRUE(says("tfevents.1.x stays as it is: it is no file")) << output();
  EXPECT_TRUE(exists("runs/a/set-aside-1/rollouts"));
  EXPECT_TRUE(exists("runs/a/rollouts/step-000003.jsonl"));
}

TEST_F(Report, OfTwoRuns) {
  ASSERT_EQ(program_.run("train run.toml run.name=b optimizer.lr=1e-4"), 0) << output();
  ASSERT_EQ(program_.run("report runs/a runs/b --out both.html --csv both.csv"), 0) << output();
  const std::string page = program_.read("both.html");
  EXPECT_NE(page.find("differ in 2 keys"), std::string::npos);
  EXPECT_GT(times_in(page, "<g class=r1>"), 10);
  EXPECT_EQ(times_in(page, "<g class=r1>"), times_in(page, "<g class=r0>"));
  EXPECT_EQ(program_.read("both.csv").substr(0, 9), "run,step,");
  // Runs of one name are told apart by their folders.
  ASSERT_EQ(program_.shell("mkdir other && cp -r runs/a other/a"), 0);
  ASSERT_EQ(program_.run("report runs/a other/a --out alike.html"), 0) << output();
  EXPECT_NE(program_.read("alike.html").find("<title>runs/a, other/a - "), std::string::npos);
}

TEST_F(Report, DoesNotTouchARunThatGoesOn) {
  const int lock = ::open(program_.path("runs/a/owner.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  const std::string metrics = program_.read("runs/a/metrics.jsonl");
  program_.write("runs/a/metrics.jsonl", metrics + "{\"step\":3,\"actor/lo");
  ASSERT_EQ(program_.run("report runs/a/ --out a.html"), 0) << output();
  EXPECT_EQ(program_.read("runs/a/metrics.jsonl"), metrics + "{\"step\":3,\"actor/lo");
  EXPECT_EQ(program_.read("a.html").find("cannot be read"), std::string::npos);
  ::close(lock);
}

TEST_F(Report, SaysWhatIsMissing) {
  program_.shell("mkdir empty && mkdir runs/new && cp runs/a/config.toml runs/new");
  EXPECT_EQ(program_.run("report absent"), 64) << output();
  EXPECT_TRUE(says("absent"));
  EXPECT_EQ(program_.run("report run.toml"), 64) << output();
  EXPECT_EQ(program_.run("report runs/a empty"), 65) << output();
  EXPECT_TRUE(says("metrics.jsonl"));
  EXPECT_EQ(program_.run("report a b c d e f g h i"), 64) << output();
  EXPECT_TRUE(says("several pages"));
  EXPECT_EQ(program_.run("report"), 64) << output();
  EXPECT_TRUE(says("RUN..."));
  ASSERT_EQ(program_.run("report runs/new"), 0) << output();
  for (const char* note : {"no step is done yet", "no events.jsonl"})
    EXPECT_NE(program_.read("runs/new/report.html").find(note), std::string::npos) << note;
  damage("runs/a/config.toml");
  program_.write(rollout_file("a", 1), "nonsense\n");
  program_.write("runs/a/metrics.jsonl", "{\"step\":1,\"x\":1}\nnonsense\n{\"step\":4,\"x\":2}\n");
  ASSERT_EQ(program_.run("report runs/a --out a.html"), 0) << output();
  const std::string page = program_.read("a.html");
  for (const char* note : {"the first is line 2", "lacks 2 of the steps 1 to 4"})
    EXPECT_NE(page.find(note), std::string::npos) << note;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
