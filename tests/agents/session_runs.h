#pragma once
// Runs whose samples are played by programs that the test program itself is.

#include "tests/support/run_fixture.h"

namespace temper {

class SessionRuns : public RunFixture {
 protected:
  static constexpr const char* kConfig = R"(
run.name = "whole"
run.steps = 2
data.chat = true
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 3
rollout.max_prompt_tokens = 200
rollout.max_new_tokens = 50
rollout.max_turn_tokens = 12
train.samples_per_update = 6
checkpoint.every = 2
checkpoint.export_hf_every = 1
)";
  static constexpr int64_t kSteps = 2;

  void SetUp() override { prepare_runs(kConfig); }
  /// The programs say the rewards.
  void prepare_runs(const std::string& config_lines) const {
    prepare(config_lines, sums(11));
    std::string config = program_.read("run.toml");
    const std::string functions = "reward.functions = [\"arithmetic\"]\n";
    config.erase(config.find(functions), functions.size());
    program_.write("run.toml", config);
  }

  /// `words`: those behind the program's name. `more`: keys, among them those of the harness as
  /// `rollout.harness.KEY`.
  static std::string train(const std::string& name, const std::string& words, const std::string& more = "",
                           const std::string& harness = "") {
    std::string argv = fmt::format("\"{}\"", std::filesystem::read_symlink("/proc/self/exe").string());
    std::istringstream all(words);
    for (std::string word; all >> word;) argv += fmt::format(", \"{}\"", word);
    return fmt::format("train run.toml run.name={} 'rollout.harness={{argv = [{}]{}}}' {}", name, argv,
                       harness.empty() ? "" : ", " + harness, more);
  }
  int run(int ranks, const std::string& arguments) const {
    return ranks == 1 ? program_.run(arguments) : program_.run_ranks(ranks, arguments);
  }
  std::vector<Json> responses(const std::string& run, int64_t step) const {
    return program_.json_lines(rollout_file(run, step));
  }
  double metric(const std::string& run, int64_t step, const std::string& key) const {
    return program_.metrics(run).at(static_cast<size_t>(step - 1)).value(key, -1.0);
  }
  void expect_same_rollouts(const std::string& a, const std::string& b, int64_t steps = kSteps) const {
    for (int64_t step = 1; step <= steps; ++step)
      EXPECT_TRUE(rollouts(a, step) == rollouts(b, step)) << "step " << step << ": " << a << ", " << b;
  }
  void expect_one_numerics(const std::string& run) const {
    for (const Json& line : program_.metrics(run))
      EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << run;
  }
  std::string rollout_files(const std::string& run, int64_t steps = kSteps) const {
    std::string files;
    for (int64_t step = 1; step <= steps; ++step) files += " " + program_.path(rollout_file(run, step));
    return files;
  }
};

}  // namespace temper
