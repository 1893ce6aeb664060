// Runs that train adapters: the log-probs of rollout and trainer are the same bits in every layout, the base
// never changes and is the reference, checkpoints hold nothing of it and are refused beside another one, and
// PEFT folders go in and out.

#include "src/io/checkpoint/manifest.h"
#include "src/io/hf/safetensors.h"
#include "tests/e2e/hybrid_run.h"
#include "tests/support/run_list.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 3
lora.rank = 4
optimizer.lr = 1e-2
algorithm.kl_coef = 0.1
algorithm.single_group = "zero"
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 2
rollout.max_prompt_tokens = 16
rollout.max_new_tokens = 8
rollout.stop = ["e", "a", "o"]
reward.functions = [{name = "length", weight = -1, max_tokens = 8, buffer_tokens = 7}]
train.samples_per_update = 4
rollout.kv_memory = 4000000
checkpoint.keep = 10
train.max_tokens_per_microbatch = 64
)";

class LoraRun : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(40)); }

  /// Tokens of older weights differ as the weights do.
  void expect_same_numerics(const std::string& run, int64_t lag = 0) const {
    for (const Json& line : program_.metrics(run))
      if (line.at("step").get<int64_t>() == 1 || lag == 0) {
        EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << run << " " << line.at("step");
      }
  }
  /// What `score` says of the responses of a step, with these arguments.
  std::vector<double> scored(const std::string& run, int64_t step, const std::string& arguments) const {
    std::string input;
    std::vector<size_t> prompts;
    for (const Json& line : program_.json_lines(rollout_file(run, step))) {
      Json tokens = line.at("prompt_tokens");
      prompts.push_back(tokens.size());
      for (const Json& token : line.at("response_tokens")) tokens.push_back(token);
      input += Json{{"tokens", tokens}}.dump() + "\n";
    }
    program_.write("input.jsonl", input);
    EXPECT_EQ(program_.shell(program_.temper() + " score --input input.jsonl " + arguments + " > scores"), 0)
        << output();
    std::vector<double> all;
    const std::vector<Json> lines = program_.json_lines("scores");
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::vector<double> logprobs = lines[i].at("logprobs").get<std::vector<double>>();
      all.insert(all.end(), logprobs.begin() + static_cast<ptrdiff_t>(prompts[i]) - 1, logprobs.end());
    }
    return all;
  }
  std::vector<double> recorded(const std::string& run, int64_t step, const char* key) const {
    std::vector<double> all;
    for (const Json& line : program_.json_lines(rollout_file(run, step)))
      for (const Json& value : line.at(key)) all.push_back(value.get<double>());
    return all;
  }
  void expect_refused(const std::string& keys, const std::vector<std::string>& words,
                      Exit code = Exit::usage) const {
    EXPECT_EQ(program_.run("check run.toml " + keys), static_cast<int>(code)) << keys << "\n" << output();
    for (const std::string& word : words) EXPECT_TRUE(says(word)) << word << "\n" << output();
  }
};

/// Layouts, and roles on ranks of their own with a lag, which get the adapters alone.
TEST_F(LoraRun, RolloutAndTrainerHaveOneNumerics) {
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"dp2", ""},
      {"tp2", "roles.trainer.tp=2"},
      {"pp2", "roles.trainer.pp=2"},
      {"zero3", "roles.trainer.zero=3"},
      {"cp2", "roles.trainer.cp=2 roles.rollout.tp=2 roles.reference.cp=1"},
      {"lag1",
       "run.max_policy_lag=1 checkpoint.every=1 checkpoint.keep=3 roles.trainer.ranks='\"0\"' "
       "roles.rollout.ranks='\"1\"' "
       "roles.reference.ranks='\"1\"'"},
  };
  std::vector<RanksRun> runs;
  for (const auto& [name, keys] : layouts)
    runs.push_back({2, fmt::format("train run.toml run.name={} {}", name, keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  for (const auto& [name, keys] : layouts) {
    expect_same_numerics(name, std::string(name) == "lag1" ? 1 : 0);
    EXPECT_EQ(rollouts(name, 1), rollouts("dp2", 1)) << name;
    EXPECT_NE(recorded(name, 3, "logprobs"), recorded(name, 3, "ref_logprobs")) << name;
  }
  EXPECT_TRUE(rollouts("zero3", 3) == rollouts("dp2", 3));
  EXPECT_EQ(recorded("lag1", 3, "logprobs"), scored("lag1", 3, "--checkpoint " + checkpoint("lag1", 1)));
}

/// The reference's log-probs after many steps are those of the model folder; those of the rollouts are the
/// adapters', alone, merged, and out of the checkpoint.
TEST_F(LoraRun, BaseStaysAndAdaptersAreWhatWasTrained) {
  ASSERT_EQ(program_.run("train run.toml run.steps=50 checkpoint.every=49 rollout.dump_every=10 "
                         "checkpoint.export_hf_every=49"),
            0)
      << output();
  expect_same_numerics("run");
  EXPECT_EQ(recorded("run", 50, "ref_logprobs"), scored("run", 50, "--model model"));
  const std::vector<double> now = recorded("run", 50, "logprobs");
  EXPECT_EQ(now, scored("run", 50, "--checkpoint " + checkpoint("run", 49)));
  EXPECT_EQ(now, scored("run", 50, "--model model --lora runs/run/export/step-000049"));
  ASSERT_EQ(program_.run("export --checkpoint " + checkpoint("run", 49) + " --out adapters"), 0) << output();
  EXPECT_EQ(files_below(program_.path("adapters")),
            files_below(program_.path("runs/run/export/step-000049")));
  ASSERT_EQ(program_.run("export --merge --checkpoint " + checkpoint("run", 49) + " --out merged"), 0)
      << output();
  const std::vector<double> merged = scored("run", 50, "--model merged");
  ASSERT_EQ(merged.size(), now.size());
  for (size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(merged[i], now[i], 2e-4);
}

/// Adapters of a model with gated delta nets are those of its attention and MLPs; of one with experts, which
/// lie on several ranks, those of attention. They change what is said, and folders hold them.
TEST_F(LoraRun, DeltaNetsAndExpertsOverRanks) {
  ASSERT_EQ(program_.init_model("hybrid", kTinyHybrid), 0) << output();
  ASSERT_EQ(program_.init_model("experts", tiny_hybrid_moe().c_str()), 0) << output();
  struct Layout {
    const char *name, *model, *keys;
  };
  const Layout layouts[] = {
      {"dp2", "hybrid", ""},
      {"tp2", "hybrid", "roles.trainer.tp=2 roles.rollout.tp=2"},
      {"pp2", "hybrid", "roles.trainer.pp=2"},
      {"zero3", "hybrid", "roles.trainer.zero=3"},
      {"ep1", "experts", "roles.trainer.ep=1"},
      {"ep2", "experts", "roles.trainer.ep=2 roles.trainer.zero=3"},
      {"tp2ep2", "experts", "roles.trainer.tp=2 roles.trainer.ep=2 roles.rollout.tp=2 roles.rollout.ep=2"},
  };
  std::vector<RanksRun> runs;
  for (const Layout& l : layouts)
    runs.push_back({2, fmt::format("train run.toml run.name={} model.path={} checkpoint.export_hf_every=2 {}",
                                   l.name, l.model, l.keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  for (const Layout& l : layouts) {
    const std::string first = l.model == std::string("hybrid") ? "dp2" : "ep1";
    expect_same_numerics(l.name);
    EXPECT_EQ(steps_done(l.name), 3) << l.name;
    EXPECT_EQ(rollouts(l.name, 1), rollouts(first, 1)) << l.name;
    EXPECT_NE(recorded(l.name, 3, "logprobs"), recorded(l.name, 3, "ref_logprobs")) << l.name;
    EXPECT_EQ(recorded(l.name, 3, "ref_logprobs"), scored(l.name, 3, fmt::format("--model {}", l.model)));
    EXPECT_EQ(
        recorded(l.name, 3, "logprobs"),
        scored(l.name, 3, fmt::format("--model {} --lora runs/{}/export/step-000002", l.model, l.name)));
  }
}

/// From a PEFT folder: the run begins there, and its reference stays there.
TEST_F(LoraRun, BeginsWithAFolderOfAdapters) {
  ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  ASSERT_EQ(program_.run("export --checkpoint runs/run --out adapters"), 0) << output();
  const std::string keys = "lora.rank=0 lora.path=adapters ";
  ASSERT_EQ(
      run_each({{1, "train run.toml run.name=alone checkpoint.every=1 " + keys},
                {2,
                 "train run.toml run.name=apart roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"0\"' "
                 "roles.reference.ranks='\"1\"' " +
                     keys}}),
      0)
      << output();
  EXPECT_EQ(recorded("alone", 1, "ref_logprobs"), recorded("alone", 1, "logprobs"));
  EXPECT_EQ(recorded("alone", 3, "ref_logprobs"), scored("alone", 3, "--model model --lora adapters"));
  EXPECT_NE(recorded("alone", 3, "ref_logprobs"), recorded("alone", 3, "logprobs"));
  EXPECT_EQ(rollouts("apart", 3), rollouts("alone", 3));
  // A resumed run has the same reference.
  copy_until("alone", "resumed", 2, 3);
  ASSERT_EQ(program_.run("train run.toml run.name=resumed checkpoint.every=1 " + keys), 0) << output();
  EXPECT_EQ(run_difference(program_, "alone", "resumed"), "");
  expect_refused("lora.rank=8 lora.path=adapters", {"lora.rank", "have 4"});
}

TEST_F(LoraRun, CheckpointHoldsNothingOfTheBase) {
  ASSERT_EQ(program_.run_ranks(2, "train run.toml checkpoint.every=1 roles.trainer.zero=2"), 0) << output();
  const Manifest manifest = Manifest::read(program_.path(checkpoint("run", 2)));
  int adapters = 0;
  for (const auto& [name, tensor] : manifest.tensors())
    if (name.starts_with("param/") || name.starts_with("opt/")) {
      EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
      ++adapters;
    }
  EXPECT_EQ(adapters, 3 * 2 * 2 * 4);  // value and moments, A and B, layers, matrices
  copy_until("run", "resumed", 1, 3);
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=resumed checkpoint.every=1 roles.trainer.zero=2"),
            0)
      << output();
  EXPECT_EQ(run_difference(program_, "run", "resumed"), "");

  program_.write("other.json", kTinyQwen3);
  ASSERT_EQ(program_.run("init --config other.json --out other --seed 2 --tokenizer model"), 0) << output();
  const std::string at = "--checkpoint runs/run ";
  EXPECT_EQ(program_.run("export --merge --source other --out wrong " + at), static_cast<int>(Exit::data));
  EXPECT_TRUE(says("other weights") && says("digest")) << output();
  EXPECT_EQ(program_.run("generate --prompt x --model other " + at), static_cast<int>(Exit::data));
  EXPECT_TRUE(says("digest")) << output();
  copy_until("run", "beside", 1, 3);
  EXPECT_EQ(program_.run_ranks(2,
                               "train run.toml run.name=beside roles.trainer.zero=2 model.path=other "
                               "tokenizer.path=model"),
            static_cast<int>(Exit::usage));
}

TEST_F(LoraRun, WrongKeysAreRefused) {
  expect_refused(R"('lora.targets=["q_porj"]')", {"lora.targets", "q_porj", "q_proj", "down_proj"});
  ASSERT_EQ(program_.init_model("hybrid", kTinyHybrid), 0) << output();
  ASSERT_EQ(program_.init_model("experts", tiny_hybrid_moe().c_str()), 0) << output();
  expect_refused(R"(model.path=hybrid 'lora.targets=["in_proj_qkv"]')",
                 {"lora.targets", "in_proj_qkv", "q_proj", "down_proj"});
  expect_refused(R"(model.path=experts 'lora.targets=["gate_proj"]')",
                 {"lora.targets", "experts get none", "q_proj"});
  expect_refused("model.init=random", {"model.init"});
  expect_refused(R"('train.freeze=["model.norm.weight"]')", {"train.freeze", "nothing else is trained"});
  expect_refused("lora.path=nowhere", {"lora.path", "does not exist"});
  std::filesystem::create_directory(program_.path("empty"));
  expect_refused("lora.path=empty", {"adapter_config.json"}, Exit::data);
  ASSERT_EQ(program_.run("check run.toml 'lora.targets=[\"q_proj\", \"v_proj\"]' lora.alpha=3"), 0)
      << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
