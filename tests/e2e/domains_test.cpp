// Lines of several domains: each is scored by the functions that name its domain, two programs among them,
// and the metrics of a domain are counts of the rollouts.

#include "tests/support/digit_run.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "whole"
run.steps = 3
rollout.prompts_per_step = 6
rollout.samples_per_prompt = 3
rollout.max_new_tokens = 2
checkpoint.every = 1
data.domain_key = "data_source"
validation.data = "data.jsonl"
validation.every = 3
reward.functions = [
  {name = "command", as = "long", argv = ["sh", "length.sh", "10"], domains = ["even"]},
  {name = "command", as = "short", argv = ["sh", "length.sh", "1"], domains = ["odd", "other"], weight = 0.5},
  {name = "exact", domains = ["odd"]},
  {name = "length", max_tokens = 2, buffer_tokens = 1, weight = 0.25},
]
)";

/// The length of a response times a number.
const char* kProgram = R"sh(
while IFS= read -r line; do
  id=${line##*\"id\":}; id=${id%\}}
  response=${line#*\"response\":\"}; response=${response%%\",\"answer\"*}
  echo "{\"id\":$id,\"reward\":$(($1 * ${#response})),\"parts\":{\"times\":$1}}"
done
)sh";

class Domains : public RunFixture {
 protected:
  void SetUp() override {
    program_.write("length.sh", kProgram);
    prepare(kConfig + digits_alone(), digit_questions(12));
  }
};

struct Sums {
  double score = 0, tokens = 0, count = 0;
  std::map<std::string, std::pair<double, double>> parts;  // sum and count
};

std::map<std::string, Sums> by_domain(const std::vector<Json>& responses) {
  std::map<std::string, Sums> domains;
  for (const Json& t : responses) {
    Sums& sums = domains[t.at("domain")];
    sums.score += t.at("raw_reward").get<double>();
    sums.tokens += static_cast<double>(t.at("response_tokens").size());
    sums.count += 1;
    for (const auto& [name, value] : t.at("reward_parts").items()) {
      sums.parts[name].first += value.get<double>();
      sums.parts[name].second += 1;
    }
  }
  return domains;
}

void expect_metrics(const Json& line, const std::string& prefix, const std::map<std::string, Sums>& domains) {
  EXPECT_EQ(domains.size(), 2u);
  for (const auto& [domain, sums] : domains) {
    const std::string own = prefix + "domain/" + domain + "/";
    EXPECT_EQ(line.at(own + "score/mean"), sums.score / sums.count);
    EXPECT_EQ(line.at(own + "response_length/mean"), sums.tokens / sums.count);
    EXPECT_EQ(line.at(own + "responses"), sums.count);
    for (const auto& [name, sum] : sums.parts)
      if (name.find('/') == std::string::npos) {
        EXPECT_EQ(line.at(own + "reward/" + name + "/mean"), sum.first / sum.second) << name;
      }
    EXPECT_EQ(line.contains(own + "reward/long/mean"), domain == "even");
    EXPECT_EQ(line.contains(own + "reward/exact/mean"), domain == "odd");
  }
}

TEST_F(Domains, RewardsAndMetricsAreThoseOfTheRollouts) {
  ASSERT_EQ(program_.run_ranks(2, "train run.toml"), 0) << output();
  for (const Json& line : program_.metrics("whole")) {
    const std::vector<Json> responses =
        program_.json_lines(rollout_file("whole", line.at("step").get<int64_t>()));
    for (const Json& t : responses) {
      const bool even = t.at("domain") == "even";
      const std::string text = t.at("response");
      const auto length = static_cast<double>(text.size());
      const double exact = text == t.at("answer").get<std::string>() ? 1 : 0;
      EXPECT_EQ(t.at("raw_reward"), even ? 10 * length : 0.5 * length + exact) << t.dump();
      EXPECT_EQ(t.at("reward_parts").contains("long"), even);
      EXPECT_EQ(t.at("reward_parts").contains("short/times"), !even);
      EXPECT_TRUE(t.at("reward_parts").contains("length"));
    }
    expect_metrics(line, "", by_domain(responses));
  }
  expect_metrics(program_.metrics("whole").back(), "val/data/",
                 by_domain(program_.json_lines("runs/whole/validation/step-000003.jsonl")));
  // A replay knows the domains, and a run that goes on the verdicts.
  ASSERT_EQ(program_.run("train run.toml run.name=replayed --replay " + rollout_file("whole", 1)), 0)
      << output();
  expect_metrics(program_.metrics("replayed").back(), "",
                 by_domain(program_.json_lines(rollout_file("whole", 1))));
  copy_until("whole", "again", 1, 3);
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=again"), 0) << output();
  EXPECT_EQ(metrics("again"), metrics("whole"));
}

TEST_F(Domains, ALineThatNoFunctionAppliesToIsFound) {
  const std::string some = "'reward.functions=[{name=\"exact\",domains=[\"even\"]}]'";
  EXPECT_EQ(program_.run("check run.toml " + some), 65);
  EXPECT_TRUE(says("no reward function applies") && says("\"odd\"") && says("6 of 12")) << output();
  EXPECT_EQ(program_.run("train run.toml validation.every=0 " + some), 65);
  EXPECT_TRUE(says("data.jsonl:2") && says("\"odd\"")) << output();
  EXPECT_FALSE(exists("runs/whole")) << "nothing was started";
  EXPECT_EQ(program_.run("check run.toml --all"), 0) << output();
  EXPECT_TRUE(says("\"even\" 6, \"odd\" 6")) << output();
  EXPECT_EQ(program_.run("check run.toml 'data.domain_key=\"\"'"), 64);
  EXPECT_TRUE(says("data.domain_key") && says("data_source")) << output();
  EXPECT_EQ(program_.run("check run.toml 'reward.functions=[\"exact\",{name=\"exact\",domains=[\"odd\"]}]'"),
            64);
  EXPECT_TRUE(says("listed twice") && says("`as`")) << output();
  EXPECT_EQ(program_.run("check run.toml data.domain_key=answer 'reward.functions=[\"exact\"]'"), 0)
      << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
