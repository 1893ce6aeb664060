// Validation in a run: what its metrics count, from step 0 on, which checkpoints stay for it, where it ends a
// run, and that a run which was cut anywhere goes on as if it had not been.

#include <csignal>
#include <set>

#include "tests/support/background.h"
#include "tests/support/digit_run.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

constexpr int kSteps = 6;

const char* kConfig = R"(
run.name = "whole"
run.steps = 6
optimizer.lr = 0.003
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 4
rollout.max_new_tokens = 1
checkpoint.every = 1
checkpoint.keep = 9
checkpoint.every_minutes = 0
validation.at_start = true
validation.every = 1
validation.samples_per_prompt = 4
validation.rollout.stop = ["7"]
validation.data = [
  "easy.jsonl",
  {name = "hard", path = "data.jsonl", samples_per_prompt = 6, rewards = ["exact"], rollout.temperature = 2},
]
)";

class ValidationRun : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig + digits_alone(), digit_questions(12));
    program_.write("easy.jsonl", digit_questions(5));
  }
  std::string train(const std::string& overrides) const { return "train run.toml " + overrides; }
  std::vector<double> values(const std::string& run, const std::string& metric) const {
    std::vector<double> all;
    for (const Json& line : program_.metrics(run)) all.push_back(line.at(metric).get<double>());
    return all;
  }
  std::vector<int64_t> saved(const std::string& run) const {
    return list_checkpoints(program_.path("runs/" + run + "/checkpoints"));
  }
  std::vector<std::string> exports(const std::string& run) const {
    const std::string folder = program_.path("runs/" + run + "/export");
    return is_directory(folder) ? list_directory(folder) : std::vector<std::string>{};
  }
  std::vector<Json> events(const std::string& run, const std::string& event) const {
    std::vector<Json> found;
    for (const Json& line : program_.json_lines("runs/" + run + "/events.jsonl"))
      if (line.at("event") == event) found.push_back(line);
    return found;
  }
};

/// By prompt: how often which answer was said, in the order of the file, and how often a right one.
struct Counted {
  std::vector<std::pair<std::string, int>> said;
  std::map<std::string, bool> right_of;
  int right = 0, samples = 0;
};

/// The share of the k-subsets of the samples that hold a right one.
double subsets_with_a_right_one(const Counted& c, int k) {
  int all = 0, with = 0;
  for (int set = 0; set < 1 << c.samples; ++set) {
    if (__builtin_popcount(static_cast<unsigned>(set)) != k) continue;
    ++all;
    with += (set & ((1 << c.right) - 1)) != 0;
  }
  return static_cast<double>(with) / all;
}

/// Lines of verl's kind, whose answer is a list of texts and numbers.
TEST_F(ValidationRun, AnyAnswerOfAListIsRight) {
  const std::string list = R"("reward_model":{"ground_truth":["1",3,"5",7,"9"]})";
  std::string data;
  for (int i = 0; i < 4; ++i) data += fmt::format("{{\"prompt\":\"An odd digit, {}?\",{}}}\n", i, list);
  program_.write("lists.jsonl", data);
  const std::string lists = "data.train=lists.jsonl data.answer_key=reward_model.ground_truth ",
                    alone = "validation.data=lists.jsonl validation.rollout.stop=[] ";
  const auto expect_odd = [&](const std::string& file, size_t samples) {
    const std::vector<Json> lines = program_.json_lines(file);
    EXPECT_EQ(lines.size(), samples);
    std::set<bool> verdicts;
    for (const Json& line : lines) {
      const std::string text = line.at("response");
      const bool odd = text.size() == 1 && std::string("13579").find(text) != std::string::npos;
      EXPECT_EQ(line.at("raw_reward"), odd ? 1 : 0) << file << ": " << line.dump();
      verdicts.insert(odd);
    }
    EXPECT_EQ(verdicts.size(), 2u) << file;
  };
  for (const char* reward : {R"("exact")", R"("arithmetic")", R"({name="gsm8k",method="flexible"})"}) {
    std::filesystem::remove_all(program_.path("all.jsonl"));
    ASSERT_EQ(program_.run(fmt::format("eval run.toml {}{}'reward.functions=[{}]' --out all.jsonl", lists,
                                       alone, reward)),
              0)
        << output();
    expect_odd("all.jsonl", 16);
  }
  ASSERT_EQ(program_.run(train(lists + alone + "run.steps=1 validation.at_start=false")), 0) << output();
  expect_odd(rollout_file("whole", 1), 16);
  expect_odd("runs/whole/validation/step-000001.jsonl", 16);
}

TEST_F(ValidationRun, MetricsAreCountsOfTheFilesAndStepZeroIsEval) {
  ASSERT_EQ(program_.run(train("run.steps=2")), 0) << output();
  const std::vector<Json> lines = program_.metrics("whole");
  ASSERT_EQ(lines.size(), 3u);
  bool some = false;
  for (const Json& line : lines) {
    const auto step = line.at("step").get<int64_t>();
    std::map<std::string, std::map<int, Counted>> sets;
    for (const Json& t : program_.json_lines("runs/whole/validation/" + step_name(step) + ".jsonl")) {
      Counted& c = sets[t.at("set")][t.at("group").get<int>()];
      const std::string text = t.at("response");
      const bool right = text == t.at("answer").get<std::string>();
      EXPECT_EQ(t.at("reward"), right ? 1.0 : 0.0) << t.dump();
      EXPECT_EQ(text.find('7'), std::string::npos) << "a stop text of validation";
      ++c.samples;
      c.right += right;
      if (text.empty()) continue;
      const auto known =
          std::find_if(c.said.begin(), c.said.end(), [&](const auto& s) { return s.first == text; });
      known == c.said.end() ? c.said.emplace_back(text, 1) : * known = {text, known->second + 1};
      c.right_of[text] = right;
    }
    EXPECT_EQ(sets.size(), 2u);
    for (const auto& [set, prompts] : sets) {
      const int n = set == "easy" ? 4 : 6;
      EXPECT_EQ(prompts.size(), set == "easy" ? 5u : 12u);
      const auto of = [&](const std::string& name) {
        return line.at("val/" + set + "/" + name).get<double>();
      };
      double avg = 0, maj = 0;
      for (const auto& [group, c] : prompts) {
        ASSERT_EQ(c.samples, n);
        avg += static_cast<double>(c.right) / n;
        int most = 0;
        for (const auto& [text, times] : c.said) most = std::max(most, times);
        for (const auto& [text, times] : c.said)
          if (times == most) {
            maj += c.right_of.at(text);
            break;
          }
      }
      const auto count = static_cast<double>(prompts.size());
      some = some || avg > 0;
      EXPECT_NEAR(of(fmt::format("avg@{}", n)), avg / count, 1e-15);
      EXPECT_NEAR(of("score/mean"), avg / count, 1e-15);
      EXPECT_EQ(of(fmt::format("maj@{}", n)), maj / count);
      for (const int k : {1, 2, 4, n}) {
        double pass = 0;
        for (const auto& [group, c] : prompts) pass += subsets_with_a_right_one(c, k);
        EXPECT_NEAR(of(fmt::format("pass@{}", k)), pass / count, 1e-14) << set << " " << k;
      }
    }
  }
  EXPECT_TRUE(some);
  ASSERT_EQ(program_.run("eval run.toml --out eval.jsonl 2> errors.log"), 0) << output();
  const Json evaluated = program_.json_lines("output.log").back();
  EXPECT_GT(evaluated.size(), 20u);
  for (const auto& [key, value] : evaluated.items()) EXPECT_EQ(lines.front().at(key), value) << key;
  EXPECT_EQ(program_.json_lines("eval.jsonl").size(), 5u * 4 + 12 * 6);
  ASSERT_EQ(program_.run("eval run.toml --out eval.jsonl"), 0) << "all is there: " << output();
}

TEST_F(ValidationRun, TheBestStayAndAreExported) {
  const std::string best = "checkpoint.best.metric=val/hard/avg@6 checkpoint.every=0 checkpoint.keep=1 ";
  ASSERT_EQ(program_.run(train("")), 0) << output();
  ASSERT_EQ(program_.run(train("run.name=one " + best)), 0) << output();
  EXPECT_EQ(metrics("one"), metrics("whole"));
  std::vector<double> values_of = values("one", "val/hard/avg@6");
  ASSERT_EQ(values_of.size(), size_t{kSteps} + 1);
  const auto first = std::max_element(values_of.begin() + 1, values_of.end());
  const int64_t step = first - values_of.begin();
  std::vector<int64_t> kept{step};
  if (step != kSteps) kept.push_back(kSteps);
  EXPECT_EQ(saved("one"), kept);
  EXPECT_EQ(exports("one"), std::vector<std::string>{step_name(step)});
  EXPECT_EQ(events("one", "best").back().at("step"), step);
  EXPECT_EQ(events("one", "best").back().at("value"), *first);

  // The same with those that a crash after any step leaves.
  const std::string two = best + "checkpoint.best.keep=2 checkpoint.every=2 checkpoint.keep=2 ";
  ASSERT_EQ(program_.run(train("run.name=two " + two)), 0) << output();
  const std::vector<int64_t> there = saved("two");
  EXPECT_LE(there.size(), 4u);
  ASSERT_EQ(program_.run(train("run.name=cut run.steps=4 " + two)), 0) << output();
  for (const std::string& name : exports("cut"))
    std::filesystem::remove_all(program_.path("runs/cut/export/" + name));  // a crash before they were made
  ASSERT_EQ(program_.run(train("run.name=cut " + two)), 0) << output();
  EXPECT_EQ(metrics("cut"), metrics("two"));
  EXPECT_EQ(saved("cut"), there);
}

TEST_F(ValidationRun, ItEndsTheRunWhenItIsGoodEnough) {
  ASSERT_EQ(program_.run(train("")), 0) << output();
  const std::vector<double> easy = values("whole", "val/easy/pass@2");
  const double most = *std::max_element(easy.begin() + 1, easy.end() - 1);
  const int64_t step = std::find(easy.begin() + 1, easy.end(), most) - easy.begin();
  const std::string goal = fmt::format(
      "run.stop_when.metric=val/easy/pass@2 run.stop_when.at_least={} checkpoint.every=0 "
      "checkpoint.export_hf_every=100 ",
      most);
  for (const int ranks : {1, 2}) {
    const std::string name = fmt::format("run.name=goal{} ", ranks);
    const std::string placed = ranks == 1 ? "" : "roles.trainer.ranks=0 roles.rollout.ranks=1 ";
    ASSERT_EQ(program_.run_ranks(ranks, train(name + goal + placed)), 0) << output();
    EXPECT_TRUE(says(fmt::format("the run ends after step {}", step))) << output();
    const std::string run = fmt::format("goal{}", ranks);
    EXPECT_TRUE(metrics("whole").starts_with(metrics(run)));
    EXPECT_EQ(steps_done(run), step + 1);
    EXPECT_EQ(saved(run), std::vector<int64_t>{step});
    EXPECT_EQ(exports(run), std::vector<std::string>{step_name(step)});
    EXPECT_EQ(events(run, "end").back().at("step"), step);
    EXPECT_NE(events(run, "end").back().at("reason").get<std::string>().find("val/easy/pass@2"),
              std::string::npos);
    const std::map<std::string, std::string> before =
        files_below(program_.path("runs/" + run + "/checkpoints"));
    ASSERT_EQ(program_.run_ranks(ranks, train(name + goal + placed)), 0) << output();
    EXPECT_TRUE(says("nothing is left to do")) << output();
    EXPECT_EQ(files_below(program_.path("runs/" + run + "/checkpoints")), before);
    EXPECT_EQ(steps_done(run), step + 1);
  }
  // With another goal it goes on, as if nothing had been.
  ASSERT_EQ(
      program_.run(train("run.name=goal1 run.stop_when.metric=val/easy/pass@2 run.stop_when.at_least=2")), 0)
      << output();
  EXPECT_EQ(metrics("goal1"), metrics("whole"));
  EXPECT_EQ(newest_state(program_.path("runs/goal1")), newest_state(program_.path("runs/whole")));
}

TEST_F(ValidationRun, ACutRunGoesOnAlike) {
  const std::string more =
      "checkpoint.best.metric=val/hard/pass@2 run.stop_when.metric=val/easy/pass@2 "
      "run.stop_when.at_least=0.999 run.stop_when.times=3 run.steps=4 ";
  ASSERT_EQ(program_.run(train(more)), 0) << output();
  for (const int64_t step : saved("whole")) {
    const std::string name = fmt::format("again{}", step);
    copy_until("whole", name, step, kSteps);
    ASSERT_EQ(program_.run(train(more + "run.name=" + name)), 0) << output();
    EXPECT_EQ(run_difference(program_, "whole", name), "") << name;
  }
}

TEST_F(ValidationRun, AStopCutsTheOneAtTheStart) {
  prepare_long_model();
  const std::string slow = train(
      "model.path=long run.steps=1 validation.data=easy.jsonl validation.max_prompts=2 validation.every=0 "
      "validation.samples_per_prompt=1 rollout.ignore_eos=true validation.rollout.stop=[] "
      "validation.rollout.max_new_tokens=2500 rollout.kv_memory=50000000 ");
  ASSERT_EQ(program_.run(slow), 0) << output();
  {
    Background job(program_, program_.temper() + " " + slow + "run.name=cut");
    ASSERT_TRUE(job.until([&] { return exists("runs/cut/config.toml"); })) << output();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(job.pid(), SIGTERM);
    ASSERT_EQ(job.wait(), 75) << output();
  }
  EXPECT_TRUE(says("SIGTERM: saved step 0")) << output();
  EXPECT_EQ(steps_done("cut"), 0);
  ASSERT_EQ(program_.run(slow + "run.name=cut"), 0) << output();
  EXPECT_EQ(run_difference(program_, "whole", "cut"), "");
}

TEST_F(ValidationRun, MetricsThatItDoesNotHaveAreRefused) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"checkpoint.best.metric=val/hard/avg@4", {"checkpoint.best.metric", "val/hard/avg@6", "did you mean"}},
      {"run.stop_when.metric=val/esay/pass@2", {"run.stop_when.metric", "val/easy/pass@2"}},
      {"run.stop_when.metric=val/easy/pass@2", {"run.stop_when.at_least"}},
      {"checkpoint.best.metric=val/easy/maj@4 validation.every=0", {"validation.every = 0"}},
      {"'validation.data=[\"data.jsonl\",{name=\"data\",path=\"easy.jsonl\"}]'", {"two sets are called"}},
      {"'validation.data=[{path=\"data.jsonl\",rollout={temprature=1}}]'", {"temprature", "temperature"}},
      {"'validation.data=[{path=\"data.jsonl\",rewards=[\"exat\"]}]'", {"exat", "exact"}},
      {"'validation.data=[{path=\"data.jsonl\",rollout={min_new_tokens=9}}]'", {"min_new_tokens"}},
  };
  for (const auto& [overrides, words] : cases) {
    EXPECT_EQ(program_.run(train(overrides)), 64) << overrides;
    for (const char* word : words) EXPECT_TRUE(says(word)) << word << "\n" << output();
  }
  EXPECT_FALSE(exists("runs")) << "nothing was started";
}

TEST_F(ValidationRun, RolloutsOfOneStepAreTheOtherHalfOfAReplay) {
  ASSERT_EQ(program_.run(train("run.steps=2 algorithm.kl_coef=0.1")), 0) << output();
  const std::string alone = "algorithm.kl_coef=0.1 run.name=alone rollout.dump_every=0 --rollouts-only";
  ASSERT_EQ(program_.run(train(alone)), 0) << output();
  EXPECT_EQ(rollouts("alone", 1), rollouts("whole", 1));
  EXPECT_FALSE(exists("runs/alone/checkpoints"));
  EXPECT_FALSE(exists("runs/alone/validation"));
  ASSERT_EQ(
      program_.run(train("algorithm.kl_coef=0.1 run.name=replayed --replay " + rollout_file("alone", 1))), 0)
      << output();
  const auto trained = [&](const std::string& run, int64_t step) {
    const Manifest manifest = Manifest::read(program_.path(checkpoint(run, step)));
    return manifest.tensors().at("param/embed").digest;
  };
  EXPECT_EQ(trained("replayed", 1), trained("whole", 1));
  // The step after a checkpoint.
  copy_until("whole", "next", 1, 2);
  ASSERT_EQ(program_.run(train("algorithm.kl_coef=0.1 run.name=next --rollouts-only")), 0) << output();
  EXPECT_EQ(rollouts("next", 2), rollouts("whole", 2));
  EXPECT_EQ(saved("next"), std::vector<int64_t>{1});
  for (const char* wrong : {"--rollouts-only algorithm.name=sft train.samples_per_update=4",
                            "--rollouts-only --replay runs/whole/rollouts/step-000001.jsonl"})
    EXPECT_EQ(program_.run(train(wrong)), 64) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
