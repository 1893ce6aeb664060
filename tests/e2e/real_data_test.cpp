// GRPO on questions as GSM8K writes them, with a real tokenizer and its chat template, on two ranks; then
// every score, reward, advantage and metric of the rollouts is computed a second time from the run's files
// alone (nothing of src/rl) and is equal, bit for bit. tools/real_data_run.sh does the same with the whole of
// GSM8K and Qwen3's files.

#include <cmath>
#include <functional>
#include <regex>
#include <set>

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "grpo"
run.steps = 3
model.path = "runs/sft/export/step-000007"
algorithm.kl_coef = 0.05
rollout.prompts_per_step = 8
rollout.samples_per_prompt = 6
rollout.max_prompt_tokens = 150
rollout.max_new_tokens = 20
train.updates_per_step = 2
data.chat = true
data.prompt_key = "question"
reward.functions = [{name = "gsm8k", format_score = 0.1, weight = 0.7},
             {name = "length", max_tokens = 20, buffer_tokens = 15, weight = 0.3}]
)";

const char* kWarmStart =
    "train run.toml run.name=sft run.steps=7 model.path=model algorithm.name=sft "
    "train.samples_per_update=12 "
    "optimizer.lr=1e-2 optimizer.weight_decay=0 data.train=answers.jsonl checkpoint.export_hf_every=7";

/// Twelve questions, whose solutions end in one of a few numbers.
std::vector<Json> questions() {
  const char* const kGoods[] = {"clips", "apples", "boxes of \u201ctea\u201d", "caf\u00e9 tables"};
  std::vector<Json> lines;
  for (int i = 0; i < 12; ++i) {
    const char* goods = kGoods[i % 4];
    const int half = std::array{2, 3, 600}[static_cast<size_t>(i % 3)];
    const std::string sum = half == 600 ? "1,200" : std::to_string(2 * half);
    lines.push_back(
        {{"question",
          fmt::format("Natalia sold {0} {1} on day {2} and as many on the next.\nHow many {1} is that?", half,
                      goods, i + 1)},
         {"answer",
          fmt::format("She sold {0}+{0} = <<{0}+{0}={1}>>{1} {2}.\n#### {3}", half, 2 * half, goods, sum)},
         {"response", "#### " + sum}});
  }
  return lines;
}

/// What follows the last `#### ` that a number follows, without commas; empty when there is none.
std::string final_number(const std::string& text) {
  static const std::regex kMarked("#### (-?[0-9.,]+)");
  std::string last;
  for (std::sregex_iterator at(text.begin(), text.end(), kMarked), end; at != end; ++at) last = (*at)[1];
  std::erase(last, ',');
  return last;
}

double gsm8k_score(const Json& row) {
  const std::string found = final_number(row.at("response"));
  if (found.empty()) return 0;
  return found == final_number(row.at("answer")) ? 1 : 0.1;
}

double length_score(const Json& row) {
  const auto n = static_cast<double>(row.at("response_tokens").size());
  return n <= 5 ? 0 : (5 - n) / 15;
}

std::vector<double> group_advantages(const std::vector<double>& rewards) {
  const auto n = static_cast<double>(rewards.size());
  double sum = 0, squares = 0;
  for (const double r : rewards) sum += r;
  for (const double r : rewards) squares += (r - sum / n) * (r - sum / n);
  const bool equal = std::set<double>(rewards.begin(), rewards.end()).size() == 1;
  std::vector<double> advantages;
  for (const double r : rewards)
    advantages.push_back(equal ? 0 : (r - sum / n) / (std::sqrt(squares / (n - 1)) + 1e-6));
  return advantages;
}

/// Compares what a run wrote with what it should have written.
class Audit {
 public:
  void step(const std::vector<Json>& rows, const Json& metrics) {
    std::map<int, std::vector<const Json*>> groups;
    for (const Json& row : rows) groups[row.at("group")].push_back(&row);
    for (const auto& [group, members] : groups) {
      std::vector<double> rewards;
      for (const Json* row : members) rewards.push_back(reward(*row));
      const std::vector<double> advantages = group_advantages(rewards);
      for (size_t i = 0; i < members.size(); ++i) equal(members[i]->at("advantage"), advantages[i]);
    }
    const auto of = [](const char* key) {
      return [key](const Json& row) { return row.at(key).get<double>(); };
    };
    const auto size_of = [](const char* key) {
      return [key](const Json& row) { return static_cast<double>(row.at(key).size()); };
    };
    statistic(rows, metrics, "critic/score", of("raw_reward"));
    statistic(rows, metrics, "critic/rewards", of("reward"));
    statistic(rows, metrics, "critic/advantages", of("advantage"), [](const Json& row) {
      double counted = 0;
      for (const Json& mask : row.at("response_mask")) counted += mask.get<int>();
      return counted;
    });
    statistic(rows, metrics, "response_length", size_of("response_tokens"));
    statistic(rows, metrics, "prompt_length", size_of("prompt_tokens"));
  }
  int compared() const { return compared_; }
  int wrong() const { return wrong_; }

 private:
  void equal(double written, double expected) {
    ++compared_;
    wrong_ += written != expected;
  }
  double reward(const Json& row) {
    const double gsm8k = gsm8k_score(row), length = length_score(row);
    const double raw = 0.7 * gsm8k, shaped = raw + 0.3 * length;
    equal(row.at("reward_parts").at("gsm8k"), gsm8k);
    equal(row.at("reward_parts").at("length"), length);
    equal(row.at("raw_reward"), raw);
    equal(row.at("reward"), shaped);
    return shaped;
  }
  /// Each value counts so many times, but never 0: responses of this run have tokens.
  template <class Value>
  void statistic(
      const std::vector<Json>& rows, const Json& metrics, const std::string& name, Value value,
      const std::function<double(const Json&)>& times = [](const Json&) { return 1; }) {
    double sum = 0, count = 0, high = value(rows.at(0)), low = high;
    for (const Json& row : rows) {
      sum += times(row) * value(row);
      count += times(row);
      high = std::max(high, value(row));
      low = std::min(low, value(row));
    }
    equal(metrics.at(name + "/mean"), sum / count);
    equal(metrics.at(name + "/max"), high);
    equal(metrics.at(name + "/min"), low);
  }

  int compared_ = 0, wrong_ = 0;
};

class RealData : public RunFixture {
 protected:
  void SetUp() override {
    std::string solutions, answers;
    for (const Json& line : questions()) {
      solutions += Json{{"question", line.at("question")}, {"answer", line.at("answer")}}.dump() + "\n";
      answers += Json{{"question", line.at("question")}, {"response", line.at("response")}}.dump() + "\n";
    }
    prepare(kConfig, solutions);
    program_.write("answers.jsonl", answers);
  }
  std::vector<Json> rows_of(int step) const { return program_.json_lines(rollout_file("grpo", step)); }
};

TEST_F(RealData, EveryScoreAndAdvantageAgain) {
  ASSERT_EQ(program_.run_ranks(2, kWarmStart), 0) << output();
  ASSERT_EQ(program_.run_ranks(2, "train run.toml"), 0) << output();
  const std::vector<Json> metrics = program_.metrics("grpo");
  ASSERT_EQ(metrics.size(), 3u);
  Audit audit;
  std::map<double, int> scores;
  int advantages = 0;
  for (int step = 1; step <= 3; ++step) {
    const std::vector<Json> rows = rows_of(step);
    const Json& metric = metrics[static_cast<size_t>(step - 1)];
    ASSERT_EQ(rows.size(), 48u);
    audit.step(rows, metric);
    EXPECT_EQ(metric.at("actor/rollout_logprob_diff_max"), 0);
    for (const Json& row : rows) {
      ++scores[row.at("reward_parts").at("gsm8k")];
      advantages += row.at("advantage") != 0;
      EXPECT_NE(row.at("prompt").get<std::string>().find("<|im_start|>assistant"), std::string::npos);
    }
  }
  EXPECT_EQ(audit.wrong(), 0);
  EXPECT_EQ(audit.compared(), 3 * (48 * 5 + 15));
  std::printf("%d numbers compared, %d advantages are not 0, scores:", audit.compared(), advantages);
  for (const auto& [score, count] : scores) std::printf(" %d of %g", count, score);
  std::printf("\n");
  EXPECT_EQ(scores.size(), 3u) << "the model never was right, or never wrong, or always answered";
  EXPECT_GT(advantages, 48);

  std::vector<Json> rows = rows_of(2);
  rows[7]["advantage"] = std::nextafter(rows[7]["advantage"].get<double>(), 10.0);
  Audit altered;
  altered.step(rows, metrics[1]);
  EXPECT_GE(altered.wrong(), 1);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
