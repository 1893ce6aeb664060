// Wrong configs: each is refused with its key, its place and legal values, and every proposed value is
// accepted.

#include <gtest/gtest.h>

#include <algorithm>

#include "src/config/later_keys.h"
#include "src/config/values.h"
#include "tests/config/config_text.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

struct Wrong {
  const char* written;  // an override
  const char* key;      // that the error names
  const char* words;    // in the message
  bool proposes;        // legal values for the key are given
};

const Wrong kWrong[] = {
    {"run.name=a/b", "run.name", "plain folder name", true},
    {"run.name=..", "run.name", "plain folder name", true},
    {"run.name=", "run.name", "plain folder name", true},
    {"run.name=\"a\\u0000b\"", "run.name", "", true},
    {"run.name=-x", "run.name", "plain folder name", true},
    {"run.steps=0", "run.steps", "at least 1", true},
    {"run.steps=-5", "run.steps", "at least 1", true},
    {"run.steps=10.0", "run.steps", "an integer", true},
    {"run.steps=ten", "run.steps", "\"ten\" is a string", true},
    {"run.steps=99999999999999999999", "run.steps", "an integer", true},
    {"run.seed=-1", "run.seed", "at least 0", true},
    {"run.device=gpu", "run.device", "cpu", true},
    {"cluster.shared_gpus=yes", "cluster.shared_gpus", "\"error\" or \"allow\"", true},
    {"run.dtype=fp16", "run.dtype", "\"auto\", \"fp32\", \"bf16\" or \"fp64\"", true},
    {"run.threads=0", "run.threads", "\"auto\" or an integer", true},
    {"run.max_policy_lag=17", "run.max_policy_lag", "at most 16", true},
    {"run.time_limit=3 hours", "run.time_limit", "3h45m", true},
    {"run.time_limit=90", "run.time_limit", "\"none\"", true},
    {"run.overwrite=yes", "run.overwrite", "true or false", true},
    {"run.stepz=5", "run.stepz", "did you mean `run.steps`", false},
    {"rollout.lr=5", "rollout.lr", "did you mean `optimizer.lr`", false},
    {"rolout.temperature=1", "rolout", "did you mean `rollout`", false},
    {"nothing.at_all=1", "nothing", "unknown section", false},
    {"run.name.x=1", "run.name", "a table", true},
    {"roles.trainer=1", "roles.trainer", "section", false},
    {"trainer.ppo_mini_batch_size=64", "trainer", "train.samples_per_update", false},
    {"actor_rollout_ref.rollout.n=4", "actor_rollout_ref", "rollout.samples_per_prompt", false},
    {"train.ppo_mini_batch_size=64", "train.ppo_mini_batch_size", "train.samples_per_update", false},
    {"rollout.num_return_sequences_in_group=8", "rollout.num_return_sequences_in_group", "samples_per_prompt",
     false},
    {"train.gradient_accumulation_steps=8", "train.gradient_accumulation_steps", "cut by tokens", false},
    {"model.init=scratch", "model.init", "\"load\" or \"random\"", true},
    {"model.path=", "model.path", "any string but the empty one", false},
    {"model.context_tokens=1", "model.context_tokens", "at least 2", true},
    {"algorithm.name=ppo", "algorithm.name", "\"reinforce++-baseline\" or \"sft\"", true},
    {"algorithm.loss=gspp", "algorithm.loss", "did you mean `gspo`", true},
    {"algorithm.advantage=rlo", "algorithm.advantage", "did you mean `rloo`", true},
    {"algorithm.kl_coef=-0.1", "algorithm.kl_coef", "at least 0", true},
    {"algorithm.kl_coef=nan", "algorithm.kl_coef", "nan", true},
    {"algorithm.clip_low=inf", "algorithm.clip_low", "inf", true},
    {"algorithm.aggregation=token_mean", "algorithm.aggregation", "did you mean `token-mean`", true},
    {"algorithm.ratio_clamp=1000", "algorithm.ratio_clamp", "at most 700", true},
    {"rollout.prompts_per_step=0", "rollout.prompts_per_step", "at least 1", true},
    {"rollout.samples_per_prompt=-1", "rollout.samples_per_prompt", "at least 1", true},
    {"rollout.samples_per_prompt=4097", "rollout.samples_per_prompt", "at most 4096", true},
    {"validation.samples_per_prompt=4097", "validation.samples_per_prompt", "at most 4096", true},
    {"rollout.max_new_tokens=0", "rollout.max_new_tokens", "at least 1", true},
    {"rollout.temperature=-1", "rollout.temperature", "0, or at least 1e-06", true},
    {"rollout.temperature=1e-320", "rollout.temperature", "0, or at least 1e-06", true},
    {"model.digest=12ab", "model.digest", "32 hexadecimal digits", true},
    {"rollout.top_p=0", "rollout.top_p", "more than 0 and at most 1", true},
    {"rollout.top_p=1.5", "rollout.top_p", "more than 0 and at most 1", true},
    {"rollout.min_p=2", "rollout.min_p", "at most 1", true},
    {"rollout.min_new_tokens=-1", "rollout.min_new_tokens", "at least 0", true},
    {"rollout.repetition_penalty=0", "rollout.repetition_penalty", "at least 0.01 and at most 100", true},
    {"rollout.repetition_penalty=nan", "rollout.repetition_penalty", "nan", true},
    {"rollout.presence_penalty=2.5", "rollout.presence_penalty", "at least -2 and at most 2", true},
    {"rollout.frequency_penalty=-3", "rollout.frequency_penalty", "at least -2 and at most 2", true},
    {"rollout.frequency_penalty=some", "rollout.frequency_penalty", "a number", true},
    {"rollout.logit_bias=5", "rollout.logit_bias", "a table of token ids", true},
    {"rollout.logit_bias=[1,2]", "rollout.logit_bias", "a table of token ids", true},
    {"rollout.logit_bias={the=1}", "rollout.logit_bias", "`the` is no token id", true},
    {"rollout.logit_bias={-1=1}", "rollout.logit_bias", "`-1` is no token id", true},
    {"rollout.logit_bias={007=1}", "rollout.logit_bias", "`007` is no token id", true},
    {"rollout.logit_bias={2147483648=1}", "rollout.logit_bias", "`2147483648` is no token id", true},
    {"rollout.logit_bias={\"\"=1}", "rollout.logit_bias", "no token id", true},
    {"rollout.logit_bias={5=101}", "rollout.logit_bias", "at least -100 and at most 100", true},
    {"rollout.logit_bias={5=-inf}", "rollout.logit_bias", "at least -100 and at most 100", true},
    {"rollout.logit_bias={5=\"x\"}", "rollout.logit_bias", "a number", true},
    {"rollout.logit_bias.5.6=1", "rollout.logit_bias", "a table", true},
    {"rollout.tokens_per_step=-1", "rollout.tokens_per_step", "at least 0", true},
    {"rollout.dynamic_sampling_rounds=1001", "rollout.dynamic_sampling_rounds", "at least 0 and at most 1000",
     true},
    {"algorithm.tis_cap=-0.5", "algorithm.tis_cap", "at least 0", true},
    {"rollout.stop=[\"\"]", "rollout.stop", "none of them empty", true},
    {"rollout.stop=x", "rollout.stop", "a list", true},
    {"rollout.stop_token_ids=[-1]", "rollout.stop_token_ids", "at least 0", true},
    {"rollout.stop_token_ids=[1.5]", "rollout.stop_token_ids", "integers", true},
    {"rollout.kv_page_tokens=8", "rollout.kv_page_tokens", "at least 16 and at most 256", true},
    {"rollout.kv_memory=2Gi", "rollout.kv_memory", "40GiB", true},
    {"rollout.kv_memory=GiB", "rollout.kv_memory", "40GiB", true},
    {"rollout.kv_memory=-2GiB", "rollout.kv_memory", "40GiB", true},
    {"rollout.kv_memory=0.1B", "rollout.kv_memory", "40GiB", true},
    {"rollout.kv_memory=1e9TB", "rollout.kv_memory", "40GiB", true},
    {"train.recompute.granularity=all", "train.recompute.granularity", "\"selective\"", true},
    {"train.offload.gradients=true", "train.offload.gradients", "not in this version", true},
    {"train.last_partial=pad", "train.last_partial", "\"keep\"", true},
    {"optimizer.lr=-1", "optimizer.lr", "at least 0", true},
    {"optimizer.lr=1e-6x", "optimizer.lr", "a number", true},
    {"optimizer.betas=[0.9]", "optimizer.betas", "2 numbers", true},
    {"optimizer.betas=[0.9,1.0]", "optimizer.betas", "less than 1", true},
    {"optimizer.eps=0", "optimizer.eps", "at least 1.2e-38", true},
    {"optimizer.eps=1e-46", "optimizer.eps", "at least 1.2e-38", true},
    {"optimizer.min_lr_ratio=1.1", "optimizer.min_lr_ratio", "at most 1", true},
    {"optimizer.schedule=cosinus", "optimizer.schedule", "did you mean `cosine`", true},
    {"data.train=[]", "data.train", "empty", false},
    {"data.train=[{path=\"a\",wieght=2}]", "data.train", "wieght", false},
    {"data.train=[{path=\"a\",weight=0}]", "data.train", "more than 0", false},
    {"data.train=7e3", "data.train", "FILE", false},
    {"data.chat_arguments=3", "data.chat_arguments", "a table", true},
    {"data.chat_arguments.when=2024-01-01", "data.chat_arguments", "a date", true},
    {"data.chat_arguments.x=[nan]", "data.chat_arguments", "finite", true},
    {"reward.functions=[]", "reward.functions", "0 functions", false},
    {"reward.functions=[\"exact\",\"exact\"]", "reward.functions", "twice", false},
    {"reward.functions=[{weight=1}]", "reward.functions", "no name", false},
    {"reward.functions=[{name=\"exact\",weight=nan}]", "reward.functions", "not finite", false},
    {"roles.trainer.etp=2", "roles.trainer.etp", "it lies whole on a rank", true},
    {"roles.critic.ranks=all", "roles.critic", "not in this version", false},
    {"roles.trainer.ranks=", "roles.trainer.ranks", "rank set", true},
    {"cluster.watchdog_seconds=0", "cluster.watchdog_seconds", "at least 1", true},
    {"cluster.watchdog_seconds=1e-9", "cluster.watchdog_seconds", "at least 1", true},
    {"checkpoint.keep=0", "checkpoint.keep", "at least 1", true},
    {"checkpoint.resume=", "checkpoint.resume", "any string but the empty one", true},
    {"validation.rollout.stop=[\"\"]", "validation.rollout.stop", "none of them empty", false},
    {"validation.data=[{name=\"a\"}]", "validation.data", "a set has no path", false},
    {"validation.data=[{path=\"a\",nmae=\"b\"}]", "validation.data", "did you mean `name`", false},
    {"validation.data=[{path=\"a\",name=\"b/c\"}]", "validation.data", "no '/'", false},
    {"validation.data=[{path=\"a\",samples_per_prompt=0}]", "validation.data", "at least 1", false},
    {"validation.data=[{path=\"a\",rollout={top_p=2}}]", "validation.data", "`top_p`", false},
    {"validation.data=[{path=\"a\",rollout=3}]", "validation.data", "`rollout`", false},
    {"reward.functions=[{name=\"exact\",domains=[]}]", "reward.functions", "list of domains", false},
    {"reward.functions=[{name=\"exact\",as=\"a/b\"}]", "reward.functions", "is no name", false},
    {"reward.functions=[\"exact\",{name=\"math\",as=\"exact\"}]", "reward.functions", "listed twice", false},
    {"log.level=verbose", "log.level", "\"debug\"", true},
    {"moe.aux_loss=all", "moe.aux_loss", "\"none\" or a list of \"sequence\", \"global\" or \"z\"", true},
    {"moe.aux_loss=[\"batch\"]", "moe.aux_loss", "would depend on how sequences are packed", true},
    {"moe.aux_coef=-0.1", "moe.aux_coef", "at least 0", true},
    {"moe.replay=trainer", "moe.replay", "\"none\" or \"rollout\"", true},
};

const ConfigError* error_of(const ConfigReading& reading, const std::string& key) {
  for (const ConfigError& error : reading.errors)
    if (error.key == key) return &error;
  return nullptr;
}

TEST(ConfigErrors, EachNamesItsKeyAndLegalValues) {
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.written);
    const ConfigReading reading = read_text(kMinimalConfig, {wrong.written});
    const ConfigError* error = error_of(reading, wrong.key);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(reading.errors.size(), 1u);
    EXPECT_EQ(error->where, "command line");
    EXPECT_NE(error->message.find(wrong.words), std::string::npos) << error->message;
    EXPECT_EQ(!error->legal.empty(), wrong.proposes) << error->message;
    expect_error(Exit::usage, {wrong.key}, wrong.written,
                 [&] { load_text(kMinimalConfig, {wrong.written}); });
  }
}

TEST(ConfigErrors, EveryProposedValueRemovesTheError) {
  int tried = 0;
  for (const Wrong& wrong : kWrong) {
    const ConfigReading reading = read_text(kMinimalConfig, {wrong.written});
    for (const ConfigError& error : reading.errors)
      for (const Json& legal : error.legal) {
        const ConfigReading better = read_text(kMinimalConfig, {error.key + "=" + toml_text(legal)});
        EXPECT_EQ(error_of(better, error.key), nullptr)
            << error.key << " = " << legal.dump() << " after " << wrong.written;
        ++tried;
      }
  }
  EXPECT_GT(tried, 80);
}

TEST(ConfigErrors, AllAreReportedAtOnceWithTheirLines) {
  const std::string text =
      "[run]\nname = \"x\"\nsteps = 0\nsteps2 = 1\n[optimizer]\nlr = \"fast\"\n[rollout]\ntop_p = 2\n";
  const ConfigReading reading = read_text(text);
  for (const char* key : {"run.steps", "run.steps2", "optimizer.lr", "rollout.top_p", "model.path",
                          "data.train", "reward.functions", "rollout.prompts_per_step",
                          "rollout.samples_per_prompt", "rollout.max_new_tokens"})
    EXPECT_NE(error_of(reading, key), nullptr) << key;
  EXPECT_EQ(reading.errors.size(), 10u);
  EXPECT_TRUE(error_of(reading, "run.steps")->where.ends_with("x.toml:3"));
  EXPECT_TRUE(error_of(reading, "rollout.top_p")->where.ends_with("x.toml:8"));
  expect_error(Exit::usage, {"10 errors", "run.steps", "x.toml:3", "x.toml:8"}, "all",
               [&] { load_text(text); });
}

TEST(ConfigErrors, RequiredKeysDependOnTheAlgorithm) {
  const ConfigReading none = read_text("algorithm.name = \"sft\"\n");
  for (const char* key :
       {"run.name", "run.steps", "model.path", "optimizer.lr", "data.train", "train.samples_per_update"})
    EXPECT_NE(error_of(none, key), nullptr) << key;
  EXPECT_EQ(none.errors.size(), 6u);
}

TEST(ConfigErrors, StepsOrEpochs) {
  std::string file = kMinimalConfig;
  file.insert(file.find("steps = 10"), "epochs = 2\n");
  for (const ConfigReading& both :
       {read_text(file), read_text(kMinimalConfig, {"run.steps=3", "run.epochs=2"})}) {
    ASSERT_EQ(both.errors.size(), 1u);
    EXPECT_EQ(both.errors[0].key, "run.epochs");
    EXPECT_NE(both.errors[0].message.find("run.steps is written, too"), std::string::npos);
  }
  const ConfigReading none = read_text("run.name = \"x\"\nalgorithm.name = \"sft\"\n");
  const ConfigError* missing = error_of(none, "run.steps");
  ASSERT_NE(missing, nullptr);
  EXPECT_NE(missing->message.find("or run.epochs"), std::string::npos) << missing->message;
  for (const char* wrong : {"run.epochs=0", "run.epochs=-1", "run.epochs=two"}) {
    const ConfigReading reading = read_text(kMinimalConfig, {wrong});
    ASSERT_EQ(reading.errors.size(), 1u) << wrong;
    EXPECT_EQ(reading.errors[0].key, "run.epochs") << wrong;
  }
}

TEST(ConfigErrors, SyntaxNamesTheLine) {
  expect_error(Exit::usage, {"x.toml:2"}, "missing value", [] { load_text("[run]\nname =\n"); });
  expect_error(Exit::usage, {"x.toml:3"}, "key twice", [] { load_text("[run]\nseed = 1\nseed = 2\n"); });
  expect_error(Exit::usage, {"x.toml:3"}, "section twice", [] { load_text("[run]\nseed = 1\n[run]\n"); });
}

TEST(ConfigErrors, CharactersBeyondAsciiBelongIntoQuotes) {
  const std::string before = std::string(kMinimalConfig) + "\n# Ж é\n[tokenizer]\n";
  for (const char* line : {"\xca\xa2 = 1", "path = 1 \xc3\xa9", "path = 0.9\xe3\x81\x82", "\xe9 = 1"})
    expect_error(Exit::usage, {"stands outside of quotes"}, line, [&] { load_text(before + line); });
  // An escape of such a character is none.
  expect_error(Exit::usage, {"escape"}, "escape", [&] { load_text(before + "path = \"a\\é\""); });
  const Config config =
      load_text("\xef\xbb\xbf" + before + "path = \"\"\"\\\n  Ответ \\u00e9 é ü 日本 \"ü\"\"\"\"\n" +
                "chat_template = 'é\\n\"ж'\n")
          .config;
  EXPECT_EQ(config.tokenizer.path, "Ответ é é ü 日本 \"ü\"");
  EXPECT_EQ(config.tokenizer.chat_template, "é\\n\"ж");
  EXPECT_EQ(load_text(before, {"run.dir=été"}).config.run.dir, "été");
}

TEST(ConfigErrors, OverridesThatAreNone) {
  for (const char* text : {"run", "=3", "run=3x=", ".=1", "run..name=x", "ru n.name=x"}) {
    const ConfigReading reading = read_text(kMinimalConfig, {text});
    EXPECT_EQ(reading.errors.size(), 1u) << text;
  }
  expect_error(Exit::usage, {"UTF-8"}, "bad bytes", [] { load_text(kMinimalConfig, {"run.name=\xff"}); });
}

TEST(ConfigErrors, LongValuesAreCut) {
  const ConfigReading reading = read_text(kMinimalConfig, {"run.device=" + std::string(5000, 'x')});
  ASSERT_EQ(reading.errors.size(), 1u);
  EXPECT_LT(reading.errors[0].message.size(), 300u);
}

TEST(ConfigErrors, LaterKeysAcceptTheirOffValuesOnly) {
  for (const LaterKey& later : later_keys()) {
    for (const Json& off : later.off)
      EXPECT_TRUE(read_text(kMinimalConfig, {later.key + "=" + toml_text(off)}).errors.empty()) << later.key;
    const ConfigReading on = read_text(kMinimalConfig, {later.key + "=77"});
    ASSERT_EQ(on.errors.size(), 1u) << later.key;
    EXPECT_EQ(on.errors[0].key, later.key);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
