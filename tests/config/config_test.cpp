// Reading, overrides, origins and the resolved dump of configs that are right.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "src/config/load.h"
#include "src/config/methods.h"
#include "src/config/sets/validation_sets.h"
#include "src/config/toml_node.h"
#include "src/config/units/duration.h"
#include "src/config/values.h"
#include "tests/config/config_text.h"

namespace temper {
namespace {

TEST(Config, MinimalHasTheDefaultsOfTheContract) {
  const Config c = load_text(kMinimalConfig).config;
  EXPECT_EQ(c.run.name, "first");
  EXPECT_EQ(c.run.steps, 10);
  EXPECT_EQ(c.run.dir, "runs");
  EXPECT_EQ(c.run.seed, 0u);
  EXPECT_FALSE(c.run.threads);
  EXPECT_FALSE(c.run.time_limit_seconds);
  EXPECT_EQ(c.algorithm.name, "grpo");
  EXPECT_EQ(c.algorithm.clip_low, 0.2);
  EXPECT_EQ(c.algorithm.advantage_eps, 1e-6);
  EXPECT_EQ(c.rollout.temperature, 1.0);
  EXPECT_EQ(c.optimizer.betas, (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(c.optimizer.lr, 1e-6);
  EXPECT_EQ(c.checkpoint.keep, 2);
  EXPECT_EQ(c.data.train.at(0).path, "data/a.jsonl");
  EXPECT_EQ(c.data.train.at(0).weight, 1.0);
  EXPECT_EQ(c.reward.functions.at(0).name, "exact");
  EXPECT_FALSE(c.roles.of("rollout").ranks);
}

TEST(Config, OriginsNameFileLineCommandLineAndDefault) {
  const LoadedConfig loaded = load_text(kMinimalConfig, {"optimizer.lr=2e-6"});
  EXPECT_TRUE(loaded.origins.at("run.name").ends_with("/x.toml:3"));
  EXPECT_TRUE(loaded.origins.at("rollout.max_new_tokens").ends_with("/x.toml:10"));
  EXPECT_EQ(loaded.origins.at("optimizer.lr"), "command line");
  EXPECT_EQ(loaded.origins.at("run.seed"), "default");
  for (const KeyDoc& doc : config_key_docs())
    EXPECT_TRUE(doc.later || loaded.origins.contains(doc.key)) << doc.key;
}

TEST(Config, PathsMayBeginAtHome) {
  ::setenv("HOME", "/home/ada", 1);
  const Config c = load_text(kMinimalConfig, {"run.dir=~/runs", "model.path=~/models/m", "tokenizer.path=~",
                                              "data.train=[\"~/a\", "
                                              "\"b~/c\"]",
                                              "validation.data=~/v.jsonl", "checkpoint.resume=~other/x"})
                       .config;
  EXPECT_EQ(c.run.dir, "/home/ada/runs");
  EXPECT_EQ(c.model.path, "/home/ada/models/m");
  EXPECT_EQ(c.tokenizer.path, "/home/ada");
  EXPECT_EQ(c.data.train.at(0).path, "/home/ada/a");
  EXPECT_EQ(c.data.train.at(1).path, "b~/c");
  EXPECT_EQ(c.validation.data.at(0).path, "/home/ada/v.jsonl");
  EXPECT_EQ(c.checkpoint.resume, "~other/x") << "the home of another user is a name like any";
}

TEST(Config, OverridesAreTomlValuesOrBareStrings) {
  const Config c = load_text(kMinimalConfig,
                             {"run.name=2024", "run.seed=7", "run.device=cpu", "optimizer.lr=1",
                              "optimizer.betas=[0.8,0.9]", "data.train=[{path='b.jsonl',weight=2}]",
                              "reward.functions=math", "run.time_limit=3h45m", "data.chat_arguments.x=true",
                              "rollout.stop=[\"a=b\"]", "data.system_prompt=Be brief. # 1", "run.steps=3",
                              "run.steps=4", "model.path=a/b c"})
                       .config;
  EXPECT_EQ(c.run.name, "2024");
  EXPECT_EQ(c.run.seed, 7u);
  EXPECT_EQ(c.run.device, "cpu");
  EXPECT_EQ(c.optimizer.lr, 1.0);
  EXPECT_EQ(c.optimizer.betas, (std::vector<double>{0.8, 0.9}));
  EXPECT_EQ(c.data.train.at(0).path, "b.jsonl");
  EXPECT_EQ(c.data.train.at(0).weight, 2.0);
  EXPECT_EQ(c.reward.functions.at(0).name, "math");
  EXPECT_EQ(c.run.time_limit_seconds, 13500.0);
  EXPECT_EQ(c.data.chat_arguments, (Json{{"x", true}}));
  EXPECT_EQ(c.rollout.stop, std::vector<std::string>{"a=b"});
  EXPECT_EQ(c.data.system_prompt, "Be brief. # 1");
  EXPECT_EQ(c.run.steps, 4);
  EXPECT_EQ(c.model.path, "a/b c");
}

TEST(Config, OverrideCannotSmuggleInOtherKeys) {
  const Config c = load_text(kMinimalConfig, {"data.system_prompt=\"a\"\nw = 3"}).config;
  EXPECT_EQ(c.data.system_prompt, "\"a\"\nw = 3");
}

TEST(Config, ListsMayBeShort) {
  const std::string text = std::string(kMinimalConfig) +
                           "[validation]\ndata = [\"v.jsonl\", {path = \"w.jsonl\", weight = 0.5}]\n";
  const Config c =
      load_text(text, {"reward.functions=[{name=\"gsm8k\",weight=0.5,method=\"flexible\",format_score=0.1},"
                       "\"exact\"]"})
          .config;
  ASSERT_EQ(c.validation.data.size(), 2u);
  EXPECT_EQ(c.validation.data[1].weight, 0.5);
  ASSERT_EQ(c.reward.functions.size(), 2u);
  EXPECT_EQ(c.reward.functions[0].weight, 0.5);
  EXPECT_EQ(c.reward.functions[0].strings.at("method"), "flexible");
  EXPECT_EQ(c.reward.functions[0].numbers.at("format_score"), 0.1);
}

TEST(Config, SetsSayWhatIsOtherThanInTheirSection) {
  const LoadedConfig loaded = load_text(
      kMinimalConfig,
      {"validation.data=[\"v.jsonl\",{name=\"hard\",path=\"a/w.jsonl\",samples_per_prompt=8,rewards=[{name="
       "\"math\",weight=2}],rollout={temperature=0.5,stop=[],logit_bias={5=1}}}]",
       "validation.samples_per_prompt=2", "validation.rollout.temperature=0.25",
       "validation.rollout.stop=[\"x\"]", "rollout.top_k=9"});
  const Config& c = loaded.config;
  const Config again = load_text(dump_config(loaded)).config;
  EXPECT_EQ(config_json(again).dump(), config_json(c).dump()) << dump_config(loaded);
  const ValidationSet &plain = c.validation.data.at(0), &hard = again.validation.data.at(1);
  EXPECT_EQ(name_of(plain), "v");
  EXPECT_EQ(name_of(hard), "hard");
  EXPECT_EQ(samples_of(plain, c), 2);
  EXPECT_EQ(samples_of(hard, c), 8);
  EXPECT_EQ(rewards_of(plain, c).functions.at(0).name, "exact");
  EXPECT_EQ(rewards_of(hard, c).functions.at(0).weight, 2);
  EXPECT_EQ(rollout_of(plain, c).temperature, 0.25);
  EXPECT_EQ(rollout_of(plain, c).stop, std::vector<std::string>{"x"});
  EXPECT_EQ(rollout_of(hard, c).temperature, 0.5);
  EXPECT_TRUE(rollout_of(hard, c).stop.empty());
  EXPECT_EQ(rollout_of(hard, c).top_k, 9);
  EXPECT_EQ(rollout_of(hard, c).logit_bias, (std::map<int64_t, double>{{5, 1.0}}));
}

TEST(Config, FunctionsHaveDomainsAndOtherNames) {
  const std::string text =
      "reward.functions=[{name=\"command\",as=\"code\",argv=[\"a\"],domains=[\"x\",\"y\"]},"
      "{name=\"command\",argv=[\"b\"]}]";
  const LoadedConfig loaded = load_text(kMinimalConfig, {text});
  const std::vector<RewardFunctionConfig> again = load_text(dump_config(loaded)).config.reward.functions;
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].part(), "code");
  EXPECT_EQ(again[0].domains, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(again[1].part(), "command");
  EXPECT_TRUE(again[1].domains.empty());
}

TEST(Config, RewardFunctionsMayHaveListsOfStrings) {
  const LoadedConfig loaded = load_text(
      kMinimalConfig, {"reward.functions=[{name=\"command\",argv=[\"python3\",\"a b.py\"],workers=2}]"});
  const auto list = std::vector<std::string>{"python3", "a b.py"};
  EXPECT_EQ(loaded.config.reward.functions.at(0).lists.at("argv"), list);
  const Config again = load_text(dump_config(loaded)).config;
  EXPECT_EQ(again.reward.functions.at(0).lists.at("argv"), list) << "config.toml gives the same run";
}

TEST(Config, SupervisedNeedsNoRollout) {
  const Config c = load_text(kMinimalSft).config;
  EXPECT_EQ(c.train.samples_per_update, 8);
}

TEST(Config, OffValuesOfLaterKeysAreAccepted) {
  const std::string text =
      std::string(kMinimalConfig) +
      "[train]\noffload = {optimizer = \"auto\", weights = false}\n"
      "[roles.trainer]\ntp = 1\npp = 1\nzero = 1\n[roles.rollout]\npp = 1\nep = 1\n[profile]\nsteps = \"\"\n";
  EXPECT_NO_THROW(load_text(text, {"run.max_policy_lag=0", "rollout.tokens_per_step=0"}));
}

constexpr const char* kAlgorithmKeys[] = {"algorithm.clip_low=0.1",
                                          "algorithm.clip_high=0.28",
                                          "algorithm.kl_coef=1e-3",
                                          "algorithm.kl_in=reward",
                                          "algorithm.kl_estimator=k1+",
                                          "algorithm.aggregation=seq-mean-token-sum",
                                          "algorithm.entropy_coef=-0.5",
                                          "algorithm.advantage_eps=0",
                                          "algorithm.single_group=verl",
                                          "algorithm.ratio_clamp=0",
                                          "algorithm.k3_clamp=true",
                                          "algorithm.tis_cap=5",
                                          "algorithm.advantage=pass@k",
                                          "algorithm.advantage_std=none",
                                          "algorithm.loss=cispo",
                                          "algorithm.dual_clip=3",
                                          "algorithm.gamma=0.9",
                                          "algorithm.mask_truncated=true",
                                          "algorithm.importance=geometric",
                                          "algorithm.importance_form=mask",
                                          "algorithm.importance_bounds=[0.5,1.5]",
                                          "algorithm.reject_mean_k3=0.01",
                                          "algorithm.reject_token_below=1e-4",
                                          "algorithm.mismatch=stop",
                                          "algorithm.teacher_coef=0.5"};

constexpr const char* kLastSections[] = {"checkpoint.every_minutes=2.5",
                                         "rollout.harness={argv=[\"python3\",\"agent.py\"],env={A=\"$B\"}}",
                                         "rollout.server.address=0.0.0.0",
                                         "rollout.server.port=8000",
                                         "rollout.server.threads=2",
                                         "rollout.server.max_body=1MiB",
                                         "rollout.max_turns=20",
                                         "rollout.max_turn_tokens=100",
                                         "rollout.max_session_tokens=1000",
                                         "rollout.session_seconds=90.5",
                                         "rollout.on_limit=mask",
                                         "run.stop_when={metric=\"val/x/avg@2\",at_least=0.75,times=2}",
                                         "checkpoint.best={metric=\"val/x/avg@2\",mode=\"min\",keep=3}",
                                         "data.domain_key=data_source",
                                         "log.command=[\"python3\",\"t.py\"]",
                                         "log.command_seconds=2.5",
                                         "validation.at_start=true",
                                         "validation.rollout.max_prompt_tokens=50",
                                         "validation.rollout.min_new_tokens=2",
                                         "validation.rollout.repetition_penalty=1.5",
                                         "validation.rollout.presence_penalty=0.5",
                                         "validation.rollout.frequency_penalty=0.25",
                                         "validation.rollout.logit_bias={7=-1.5}",
                                         "validation.rollout.stop=[\"a\",\"b\"]",
                                         "validation.rollout.include_stop_text=true",
                                         "validation.rollout.stop_token_ids=[3]",
                                         "validation.rollout.ignore_eos=true",
                                         "lora.rank=16",
                                         "lora.alpha=24",
                                         "lora.targets=[\"q_proj\"]",
                                         "lora.rslora=true",
                                         "lora.path=adapters",
                                         "train.freeze=[\"lm_head.weight\",\"model.layers.0.*\"]",
                                         "model.allow_unused=[\"visual.*\",\"extra.weight\"]",
                                         "moe.router.freeze=true",
                                         "moe.aux_loss=[\"z\",\"global\"]",
                                         "moe.aux_coef=0.001",
                                         "moe.z_coef=0.0001",
                                         "moe.record_routes=true",
                                         "moe.replay=rollout",
                                         "roles.trainer.pp=2",
                                         "roles.trainer.vpp=2",
                                         "roles.trainer.ep=4",
                                         "roles.rollout.ep=2",
                                         "roles.reference.ep=4",
                                         "roles.trainer.stage_layers=[3,1]",
                                         "roles.trainer.zero=2",
                                         "roles.trainer.cp=2",
                                         "roles.reference.cp=1",
                                         "roles.reference.vpp=2",
                                         "roles.reference.zero=3",
                                         "roles.rollout.tp=2",
                                         "roles.reference.tp=2",
                                         "roles.rollout.pp=2",
                                         "roles.reference.pp=2",
                                         "roles.teacher.ranks=0",
                                         "roles.teacher.path=t",
                                         "roles.teacher.tp=2",
                                         "roles.teacher.cp=2",
                                         "roles.teacher.pp=2",
                                         "roles.teacher.vpp=2",
                                         "roles.teacher.ep=2",
                                         "roles.teacher.zero=3",
                                         "roles.teacher.offload=true",
                                         "rollout.include_stop_text=true",
                                         "validation.data=v",
                                         "validation.every=2",
                                         "validation.samples_per_prompt=4",
                                         "validation.max_prompts=100",
                                         "validation.rollout.temperature=0",
                                         "validation.rollout.top_k=1",
                                         "validation.rollout.max_new_tokens=11",
                                         "validation.rollout.top_p=0.5",
                                         "validation.rollout.min_p=0.5",
                                         "log.level=debug",
                                         "log.samples_per_step=0"};

/// A config in which every key has a value that is not its default.
LoadedConfig every_key_set() {
  std::vector<std::string> overrides = {
      "run.name=\"a \\\"b\\\" ü\"",
      "run.dir=elsewhere",
      "model.digest=0123456789abcdef0123456789abcdef",
      "run.seed=9223372036854775807",
      "run.steps=123456789012",
      "run.device=cpu",
      "run.dtype=fp64",
      "run.threads=3",
      "run.time_limit=1d2h3m4s",
      "run.overwrite=true",
      "run.max_policy_lag=2",
      "profile.steps=3-5",
      "model.path=a\\b",
      "model.init=random",
      "model.context_tokens=77",
      "tokenizer.path=t",
      "tokenizer.chat_template=c",
      "rollout.max_prompt_tokens=33",
      "rollout.min_new_tokens=3",
      "rollout.tokens_per_step=100",
      "rollout.dynamic_sampling_rounds=4",
      "rollout.dump_every=10",
      "rollout.dump_compress=zstd",
      "log.progress_seconds=2.5",
      "rollout.repetition_penalty=1.25",
      "rollout.presence_penalty=-2",
      "rollout.frequency_penalty=0.1",
      "rollout.logit_bias={7=-100,151643=0.30000000000000004}",
      "rollout.temperature=0.30000000000000004",
      "rollout.top_k=5",
      "rollout.top_p=0.9",
      "rollout.min_p=0.01",
      "rollout.stop=[\"\\n\\t\\u0001\",\"ü\"]",
      "rollout.stop_token_ids=[1,2]",
      "rollout.ignore_eos=true",
      "rollout.max_running_sequences=9",
      "rollout.prefill_chunk_tokens=10",
      "rollout.kv_page_tokens=32",
      "rollout.kv_memory=123456789",
      "train.samples_per_update=16",
      "train.updates_per_step=2",
      "train.epochs_per_step=3",
      "train.max_tokens_per_microbatch=5000",
      "train.last_partial=keep",
      "train.cost_linear=2",
      "train.cost_quadratic=0.25",
      "optimizer.betas=[0,0.999]",
      "optimizer.eps=1e-15",
      "optimizer.weight_decay=0",
      "optimizer.grad_clip=0",
      "optimizer.schedule=wsd",
      "optimizer.warmup_steps=4",
      "optimizer.min_lr_ratio=0.1",
      "optimizer.state=bf16",
      "optimizer.master=remainder",
      "data.train=[{path=\"x\",weight=0.1},\"y\"]",
      "data.prompt_key=p",
      "data.answer_key=a",
      "data.messages_key=m",
      "data.response_key=r",
      "data.train_on=each",
      "data.chat=false",
      "data.system_prompt=\"line\\nline\"",
      "data.chat_arguments={enable_thinking=false,\"a b\"={c=[1,2.5,\"x\"]}}",
      "data.shuffle=false",
      "data.overlong=drop",
      "reward.functions=[{name=\"length\",weight=-1,max_tokens=20,buffer_tokens=3}]",
      "roles.trainer.ranks=0-1",
      "roles.trainer.tp=2",
      "roles.rollout.ranks=0-1",
      "roles.reference.ranks=\"0,1\"",
      "cluster.idle_ranks=allow",
      "cluster.shared_gpus=allow",
      "train.recompute.granularity=full",
      "train.recompute.method=block",
      "train.recompute.num_layers=3",
      "train.offload.optimizer=true",
      "roles.reference.offload=false",
      "cluster.watchdog_seconds=12.5",
      "checkpoint.every=5",
      "checkpoint.keep=1",
      "checkpoint.resume=none",
      "checkpoint.export_hf_every=7",
      "checkpoint.accept_changes=true"};
  overrides.insert(overrides.end(), std::begin(kAlgorithmKeys), std::end(kAlgorithmKeys));
  overrides.insert(overrides.end(), std::begin(kLastSections), std::end(kLastSections));
  return load_text(kMinimalConfig, overrides);
}

TEST(Config, EpochsStandInsteadOfSteps) {
  std::string epochs = kMinimalConfig;
  epochs.replace(epochs.find("steps = 10"), 10, "epochs = 2.5");
  const LoadedConfig counted = load_text(epochs);
  EXPECT_EQ(counted.config.run.epochs, 2.5);
  EXPECT_EQ(counted.config.run.steps, 0);
  // The command line comes before a file.
  const LoadedConfig more = load_text(kMinimalConfig, {"run.epochs=3"});
  EXPECT_EQ(more.config.run.epochs, 3.0);
  EXPECT_EQ(more.config.run.steps, 0);
  EXPECT_EQ(more.origins.at("run.steps"), "default");
  const LoadedConfig fewer = load_text(epochs, {"run.steps=7"});
  EXPECT_FALSE(fewer.config.run.epochs);
  EXPECT_EQ(fewer.config.run.steps, 7);
  EXPECT_NE(dump_config(fewer).find("# epochs: run.steps says how long the run is  # default\n"),
            std::string::npos);
}

TEST(Config, SizesHaveUnits) {
  const auto bytes = [](const std::string& text) {
    return load_text(kMinimalConfig, {"rollout.kv_memory=" + text}).config.rollout.kv_memory_bytes.value();
  };
  EXPECT_EQ(bytes("40GiB"), int64_t{40} << 30);
  EXPECT_EQ(bytes("1.5GB"), 1500000000);
  EXPECT_EQ(bytes("512KiB"), 524288);
  EXPECT_EQ(bytes("7B"), 7);
  EXPECT_EQ(bytes("123456789"), 123456789);
}

TEST(Config, DumpReloadsToAnEqualConfig) {
  const LoadedConfig first = every_key_set();
  const Json defaults = config_json(Config{});
  const Json values = config_json(first.config);
  // Only keys that must keep one value in this version stay at their default.
  // Epochs stand instead of steps, until a run has counted them.
  const std::vector<std::string> fixed{"algorithm.name", "run.epochs"};
  for (const KeyDoc& doc : config_key_docs()) {
    if (doc.later || std::find(fixed.begin(), fixed.end(), doc.key) != fixed.end()) continue;
    EXPECT_TRUE(values.contains(doc.key)) << doc.key;
    EXPECT_NE(values.value(doc.key, Json()), defaults.value(doc.key, Json())) << doc.key;
  }
  const std::string dump = dump_config(first);
  const LoadedConfig second = load_text(dump);
  EXPECT_EQ(config_json(second.config).dump(), values.dump());
  EXPECT_NE(dump.find("seed = 9223372036854775807  # command line\n"), std::string::npos);
  EXPECT_NE(dump.find("temperature = 0.30000000000000004  # command line\n"), std::string::npos);
  EXPECT_NE(dump.find("name = \"grpo\"  # default\n"), std::string::npos);
}

/// Each default of each name can be read, is another than that of grpo, and the dump says where it came from.
TEST(Config, NamesAreRowsOfDefaults) {
  for (const AlgorithmTraits& method : kAlgorithms) {
    const std::string name(method.name), from = "  # default of " + name;
    const LoadedConfig loaded =
        load_text(kMinimalConfig, {"algorithm.name=" + name, "train.samples_per_update=1"});
    const Json values = config_json(loaded.config), usual = config_json(load_text(kMinimalConfig).config);
    const std::string dump = dump_config(loaded);
    for (const auto& [key, value] : method.defaults) {
      const std::string full(key), last = full.substr(full.find('.') + 1);
      EXPECT_NE(values[full], usual[full]) << name << " " << key;
      EXPECT_EQ(loaded.origins.at(full), "default of " + name);
      EXPECT_NE(dump.find("\n" + last + " = "), std::string::npos);
    }
    EXPECT_EQ(dump.find(from) != std::string::npos, !method.defaults.empty()) << name;
    EXPECT_EQ(config_json(load_text(dump).config), values) << name;
    EXPECT_EQ(config_json(read_dumped_config(dump, "config.toml")), values) << name;
  }
}

TEST(Config, WhatIsWrittenWinsOverTheDefaultsOfAName) {
  const LoadedConfig loaded =
      load_text(std::string(kMinimalConfig) + "[algorithm]\nname = \"dapo\"\nclip_high = 0.2\n",
                {"rollout.dynamic_sampling_rounds=0"});
  EXPECT_EQ(loaded.config.algorithm.clip_high, 0.2);
  EXPECT_EQ(loaded.config.rollout.dynamic_sampling_rounds, 0);
  EXPECT_EQ(loaded.origins.at("rollout.dynamic_sampling_rounds"), "command line");
  EXPECT_EQ(config_defaults("dapo").algorithm.clip_high, 0.28);
  EXPECT_EQ(config_defaults("dapo").rollout.dynamic_sampling_rounds, 10);
}

/// Keys that only other algorithms, or no epochs, need.
TEST(Config, DumpOfWhatIsNotSetReloads) {
  std::string epochs = kMinimalConfig;
  epochs.replace(epochs.find("steps = 10"), 10, "epochs = 2");
  for (const std::string& text : {std::string(kMinimalSft), epochs}) {
    const LoadedConfig first = load_text(text, {"optimizer.lr=0"});
    const std::string dump = dump_config(first);
    EXPECT_NE(dump.find(": not set  # default\n"), std::string::npos);
    EXPECT_NE(dump.find("\nlr = 0.0  # command line\n"), std::string::npos);
    EXPECT_EQ(config_json(load_text(dump).config).dump(), config_json(first.config).dump());
  }
}

TEST(Config, LogitBiasIsATableOfIds) {
  const auto bias_of = [](const LoadedConfig& c) { return c.config.rollout.logit_bias; };
  const std::string section = std::string(kMinimalConfig) + "[rollout.logit_bias]\n5 = 1\n\"0\" = -2.5\n";
  const std::map<int64_t, double> both{{0, -2.5}, {5, 1.0}};
  EXPECT_EQ(bias_of(load_text(section)), both);
  EXPECT_EQ(bias_of(load_text(kMinimalConfig, {"rollout.logit_bias.5=1", "rollout.logit_bias.0=-2.5"})),
            both);
  EXPECT_EQ(bias_of(load_text(section, {"rollout.logit_bias={5=7,2147483647=0}"})),
            (std::map<int64_t, double>{{0, -2.5}, {5, 7.0}, {2147483647, 0.0}}));
  EXPECT_EQ(bias_of(load_text(dump_config(load_text(section)))), both);
}

TEST(Config, DumpOfDefaultsReloadsToo) {
  const LoadedConfig first = load_text(kMinimalConfig);
  const std::string dump = dump_config(first);
  EXPECT_EQ(config_json(load_text(dump).config).dump(), config_json(first.config).dump());
  EXPECT_NE(dump.find("# samples_per_update: samples per step / updates_per_step  # default\n"),
            std::string::npos);
}

TEST(Config, OriginWithControlCharactersStaysAComment) {
  LoadedConfig loaded = load_text(kMinimalConfig);
  loaded.origins["run.seed"] = "a\nseed = 5";
  EXPECT_EQ(load_text(dump_config(loaded)).config.run.seed, 0u);
}

TEST(Config, NumbersKeepTheirBits) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const TomlNode node = parse_toml_value(toml_text(Json(value)), "");
    ASSERT_EQ(node.kind, TomlNode::Kind::real) << value;
    EXPECT_EQ(std::bit_cast<uint64_t>(node.real), std::bit_cast<uint64_t>(value));
  }
}

TEST(Config, StringsSurviveQuoting) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int n = static_cast<int>(random() % 12); n > 0; --n) text += static_cast<char>(random() % 128);
    const TomlNode tree = parse_toml(quote_toml_key(text + "k") + " = " + quote_toml(text), "x");
    ASSERT_NE(tree.find(text + "k"), nullptr);
    EXPECT_EQ(tree.find(text + "k")->text, text);
  }
}

TEST(Config, Durations) {
  EXPECT_EQ(parse_duration("3h45m"), 13500.0);
  EXPECT_EQ(parse_duration("90s"), 90.0);
  EXPECT_EQ(parse_duration("1d"), 86400.0);
  for (const char* text :
       {"", "3", "h", "3x", "45m3h", "3h3h", "0s", "-3h", "3.5h", "3 h", "99999999999999999999d", "9999d"})
    EXPECT_FALSE(parse_duration(text)) << text;
  for (const double seconds : {1.0, 59.0, 60.0, 86399.0, 90061.0, 315360000.0})
    EXPECT_EQ(parse_duration(format_duration(seconds)), seconds);
}

TEST(Config, DocsSayEverything) {
  const std::vector<KeyDoc> docs = config_key_docs();
  EXPECT_GT(docs.size(), 80u);
  for (const KeyDoc& doc : docs) {
    EXPECT_FALSE(doc.help.empty()) << doc.key;
    EXPECT_FALSE(doc.legal.empty()) << doc.key;
    EXPECT_TRUE(doc.required || !doc.default_text.empty()) << doc.key;
  }
}

/// Anything at all as a file: an Error(Exit::usage), or a config; never another exception.
TEST(Config, HostileFilesEndInUsageErrors) {
  std::mt19937 random(3);
  std::vector<std::string> texts{std::string(20000, '['),
                                 std::string(200000, '.'),
                                 "a = " + std::string(300, '['),
                                 std::string("a = \0b", 6),
                                 "\xff\xfe",
                                 "a = \"\xff\"",
                                 std::string(3 << 20, '#')};
  std::string dotted = "a";
  for (int i = 0; i < 999; ++i) dotted += ".a";
  texts.push_back(dotted + ".a = 1");
  texts.push_back("a = \"\"\"" + dotted + "\n" + dotted + "\"\"\"\n" + dotted + ".a = 1");
  texts.push_back(dotted + " = 1");
  texts.push_back("[" + dotted + "]");
  for (int i = 0; i < 1000; ++i) {
    std::string text = kMinimalConfig;
    for (int n = 0; n < 5; ++n) text[random() % text.size()] = static_cast<char>(random() % 256);
    texts.push_back(text);
  }
  int refused = 0;
  for (const std::string& text : texts) {
    try {
      load_text(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::usage) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(Config, TextsMayHoldManyDots) {
  const std::string dots(5000, '.');
  const std::string text = kMinimalConfig + std::string("# ") + dots + "\n[tokenizer]\npath = '" + dots +
                           "'\nchat_template = \"\"\"\n\\\"" + dots + "\n\"\" '" + dots + "\"\"\" # \"" +
                           dots;
  const Config c = load_text(text, {"data.system_prompt=\"" + dots + "\""}).config;
  EXPECT_EQ(c.tokenizer.path, dots);
  EXPECT_EQ(c.tokenizer.chat_template, "\"" + dots + "\n\"\" '" + dots);
  EXPECT_EQ(c.data.system_prompt, dots);
}

TEST(Config, MissingFileIsUsage) {
  try {
    load_config("/nowhere/x.toml", {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_NE(std::string(error.what()).find("/nowhere/x.toml"), std::string::npos);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
