// Runs with a teacher, a model of another shape: what it says are the bits of `temper score`, its place
// changes no bit of a run, a resumed one is the undisturbed one, and a teacher with other tokens is refused.

#include "tests/e2e/placed_run.h"
#include "tests/support/background.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

constexpr const char* kTeacher = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

/// Nothing else teaches: a random model earns no reward.
const std::string kTaught =
    "algorithm.kl_coef=0 algorithm.entropy_coef=0 roles.teacher.path=teacher algorithm.teacher_coef=0.5 ";
constexpr double kCoefficient = 0.5;

const Placement kAll{"all", 2, ""};
const Placement kOwn{"own", 4,
                     R"(roles.rollout.ranks='"0"' roles.teacher.ranks='"1"' roles.trainer.ranks='"2-3"')"};
const Placement kSplit{
    "split", 4,
    R"(roles.rollout.ranks='"0-1"' roles.teacher.ranks='"0-1"' roles.teacher.tp=2 roles.trainer.ranks='"2-3"')"};

class Teacher : public PlacedRun {
 protected:
  void SetUp() override {
    PlacedRun::SetUp();
    ASSERT_EQ(program_.init_model("teacher", kTeacher), 0) << output();
  }
};

TEST_F(Teacher, SaysTheBitsOfScoreAndTheyMakeTheAdvantages) {
  ASSERT_EQ(train(kAll, 0, "run", kTaught + "run.steps=2"), 0) << output();
  const std::vector<Json> lines = program_.json_lines(rollout_file("run", 2));
  std::string sequences;
  for (const Json& line : lines) {
    std::vector<int> tokens = line.at("prompt_tokens");
    for (const int token : line.at("response_tokens")) tokens.push_back(token);
    sequences += Json{{"tokens", tokens}}.dump() + "\n";
  }
  program_.write("sequences.jsonl", sequences);
  ASSERT_EQ(program_.shell(program_.temper() +
                           " score --model teacher --input sequences.jsonl --threads 1 > scores.jsonl"),
            0);
  const std::vector<Json> scores = program_.json_lines("scores.jsonl");
  ASSERT_EQ(scores.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<double> all = scores[i].at("logprobs"), said = lines[i].at("teacher_logprobs"),
                              own = lines[i].at("logprobs"), advantages = lines[i].at("advantages");
    EXPECT_EQ(std::vector(all.end() - std::ssize(said), all.end()), said) << i;
    double sum = 0;
    for (size_t t = 0; t < said.size(); ++t) {
      EXPECT_EQ(advantages[t], -kCoefficient * (own[t] - said[t])) << i << " " << t;
      sum += advantages[t];
    }
    EXPECT_EQ(lines[i].at("advantage").get<double>(), sum / static_cast<double>(said.size()));
  }
  EXPECT_GT(program_.metrics("run")[1].at("actor/grad_norm").get<double>(), 0);
  EXPECT_TRUE(program_.metrics("run")[1].contains("rollout/teacher_kl"));
}

TEST_F(Teacher, MayStandAnywhere) {
  std::vector<Run> runs;
  for (const int lag : {0, 1})
    for (const Placement& placement : {kAll, kOwn, kSplit})
      runs.push_back({placement, lag, fmt::format("{}-{}", placement.name, lag), kTaught});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Run& run : runs) expect_same_run(fmt::format("all-{}", run.lag), run.name);
  EXPECT_FALSE(weights("all-0") == weights("all-1"));
}

TEST_F(Teacher, GoesOnAfterEveryStep) {
  const std::string more = kTaught + "run.steps=6 checkpoint.export_hf_every=6 rollout.tokens_per_step=5";
  ASSERT_EQ(train(kOwn, 1, "whole", more), 0) << output();
  std::vector<Run> rest;
  for (int step = 1; step < 6; ++step) {
    const std::string name = fmt::format("from-{}", step);
    copy_until("whole", name, step, 6);
    rest.push_back({step % 2 == 0 ? kAll : kSplit, 1, name, more});
  }
  ASSERT_EQ(train_each(rest), 0) << output();
  for (const Run& run : rest) expect_same_run("whole", run.name, 6);

  // A signal to the rank of the teacher.
  Background job(program_, program_.mpirun(kOwn.ranks, arguments(kOwn, 1, "stopped", more)));
  const std::string file = program_.path("runs/stopped/metrics.jsonl");
  ASSERT_TRUE(job.until([&] { return path_exists(file) && std::filesystem::file_size(file) > 0; }))
      << output();
  ::kill(job.rank(1), SIGTERM);
  EXPECT_EQ(job.wait(), 75) << output();
  ASSERT_EQ(train(kAll, 1, "stopped", more), 0) << output();
  expect_same_run("whole", "stopped", 6);
}

/// Groups of one, without rewards; the student comes closer to its teacher.
TEST_F(Teacher, TeachesAlone) {
  std::string alone = program_.read("run.toml");
  const std::string rewards = "reward.functions = [\"arithmetic\"]\n";
  ASSERT_NE(alone.find(rewards), std::string::npos);
  program_.write("run.toml", alone.erase(alone.find(rewards), rewards.size()));
  EXPECT_EQ(program_.run("check run.toml --ranks 2"), 64) << "without a teacher";
  program_.write("one.jsonl", sums(1));
  const std::string more = kTaught +
                           "data.train=one.jsonl rollout.prompts_per_step=300 rollout.samples_per_prompt=1 "
                           "rollout.max_new_tokens=2 "
                           "run.steps=20 train.samples_per_update=300 optimizer.lr=1e-2 "
                           "optimizer.schedule=constant checkpoint.every=0 "
                           "checkpoint.export_hf_every=0";
  ASSERT_EQ(train(kAll, 0, "alone", more), 0) << output();
  const std::vector<Json> lines = program_.metrics("alone");
  const double first = lines.front().at("rollout/teacher_kl"), last = lines.back().at("rollout/teacher_kl");
  EXPECT_LT(last, 0.8 * first);
  EXPECT_EQ(lines.back().at("critic/score/max").get<double>(), 0);
  EXPECT_EQ(program_.run("check run.toml --ranks 2 rollout.dynamic_sampling_rounds=2 " + more), 64);
  EXPECT_TRUE(says("rollout.dynamic_sampling_rounds")) << output();
}

TEST_F(Teacher, WithOtherTokensIsRefused) {
  Json tokenizer = parse_json(program_.read("teacher/tokenizer.json"), "tokenizer.json");
  Json& ids = tokenizer["model"]["vocab"];
  const int id = std::min(ids.at("in").get<int>(), ids.at("on").get<int>());
  const std::string first = ids.at("in") == id ? "in" : "on", second = first == "in" ? "on" : "in";
  std::swap(ids["in"], ids["on"]);
  program_.write("teacher/tokenizer.json", tokenizer.dump());
  for (const char* verb : {"check", "train"}) {
    EXPECT_EQ(program_.run(fmt::format("{} run.toml {}", verb, kTaught)), 65) << output();
    EXPECT_TRUE(says("roles.teacher.path")) << output();
    EXPECT_TRUE(says(fmt::format("token {} is \"{}\" there, and \"{}\" of the policy", id, second, first)))
        << output();
  }
  std::filesystem::remove(program_.path("teacher/tokenizer.json"));
  EXPECT_EQ(program_.run("check run.toml " + kTaught), 0) << output();
}

TEST_F(Teacher, IsNotChangedInSilence) {
  ASSERT_EQ(train(kAll, 1, "run", "algorithm.kl_coef=0 run.steps=2"), 0) << output();
  EXPECT_EQ(train(kAll, 1, "run", kTaught + "run.steps=3"), 64);
  EXPECT_TRUE(says("roles.teacher.path")) << output();
  ASSERT_EQ(train(kAll, 1, "run", kTaught + "run.steps=3 checkpoint.accept_changes=true"), 0) << output();
  for (const Json& line : program_.json_lines(rollout_file("run", 3)))
    EXPECT_EQ(line.at("teacher_logprobs").size(), line.at("response_tokens").size());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
