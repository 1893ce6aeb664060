// The command line of every verb, its mistakes, and help.

#include "src/run/verbs/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/config/config.h"
#include "src/config/typed/peer_keys.h"
#include "src/rl/registry.h"
#include "src/run/report/metric_docs.h"
#include "src/run/verbs/help/help.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

using Words = std::vector<std::string>;

TEST(CommandLine, Train) {
  const CommandLine line = parse_command_line(Words{"train", "c.toml", "run.steps=3", "--replay", "a.jsonl",
                                                    "b=c/x.jsonl", "run.seed=1", "--dump-gradients=out"});
  EXPECT_EQ(line.verb, "train");
  EXPECT_EQ(line.positional, "c.toml");
  EXPECT_EQ(line.overrides, (Words{"run.steps=3", "run.seed=1"}));
  EXPECT_EQ(line.list("--replay"), (Words{"a.jsonl", "b=c/x.jsonl"}));
  EXPECT_EQ(line.text("--dump-gradients"), "out");
  EXPECT_FALSE(line.has("--json"));
}

TEST(CommandLine, Check) {
  const CommandLine line =
      parse_command_line(Words{"check", "--ranks", "8", "c.toml", "--json", "--device-memory", "1.5",
                               "--gpus-per-node=4", "--explain-batch"});
  EXPECT_EQ(line.positional, "c.toml");
  EXPECT_EQ(line.integer("--ranks", 1), 8);
  EXPECT_EQ(line.integer("--gpus-per-node", 0), 4);
  EXPECT_EQ(line.number("--device-memory", 0), 1.5);
  EXPECT_TRUE(line.has("--json") && line.has("--explain-batch"));
  EXPECT_EQ(parse_command_line(Words{"check", "c.toml"}).integer("--ranks", 1), 1);
}

TEST(CommandLine, MemoryIsGiBOrWhatACardHas) {
  const auto memory = [](const char* text) {
    return parse_command_line(Words{"check", "c.toml", "--device-memory", text}).memory("--device-memory", 0);
  };
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(memory("80"), 80 * kGiB);
  EXPECT_EQ(memory("1.5"), 3 * kGiB / 2);
  EXPECT_EQ(memory("40GiB"), 40 * kGiB);
  EXPECT_EQ(memory("64GB"), 64000000000);
  // An H100 as its driver gave it; of an H200 the least that public logs show, to two places.
  const std::pair<const char*, int64_t> cards[] = {
      {"80GB", 85017493504}, {"80 gb", 85017493504}, {"141GB", static_cast<int64_t>(139.72 * kGiB)}};
  for (const auto& [label, total] : cards) {
    EXPECT_LE(memory(label), total) << label;
    EXPECT_GT(memory(label), total - kGiB / 4) << label;
  }
  EXPECT_EQ(parse_command_line(Words{"check", "c.toml"}).memory("--device-memory", 7), 7);
}

TEST(CommandLine, OtherVerbs) {
  const CommandLine generate =
      parse_command_line(Words{"generate", "--model", "m", "--prompt", "-5 + 3 = ?", "--samples", "4",
                               "rollout.temperature=0.5", "--dtype", "fp64"});
  EXPECT_EQ(generate.text("--prompt"), "-5 + 3 = ?");
  EXPECT_EQ(generate.overrides, Words{"rollout.temperature=0.5"});
  EXPECT_EQ(generate.text("--device", "auto"), "auto");
  EXPECT_EQ(parse_command_line(Words{"generate", "--model", "m", "--prompt="}).text("--prompt", "x"), "");
  EXPECT_EQ(parse_command_line(Words{"score", "--model", "m", "--input", "f", "--temperature", "0.7"})
                .number("--temperature", 1),
            0.7);
  EXPECT_EQ(parse_command_line(Words{"score", "--checkpoint", "runs/r", "--input", "f"}).text("--checkpoint"),
            "runs/r");
  EXPECT_TRUE(parse_command_line(Words{"tokenize", "--tokenizer", "t", "--input", "f", "--add-special"})
                  .has("--add-special"));
  EXPECT_EQ(
      parse_command_line(Words{"init", "--config", "c", "--out", "o", "--seed", "9"}).integer("--seed", 0),
      9);
  EXPECT_EQ(parse_command_line(Words{"export", "--checkpoint", "c", "--out", "o", "--shard-size", "1000"})
                .integer("--shard-size", 0),
            1000);
  EXPECT_EQ(parse_command_line(Words{"export", "--checkpoint", "c", "--out", "o", "--shard-size", "2GiB"})
                .integer("--shard-size", 0),
            int64_t{2} << 30);
  EXPECT_TRUE(parse_command_line(Words{"verify", "--checkpoint", "c", "--json"}).has("--json"));
  EXPECT_EQ(parse_command_line(Words{"eval", "c", "--threads", "2"}).integer("--threads", 0), 2);
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(parse_command_line(Words{"--version"}).verb, "version");
  EXPECT_EQ(parse_command_line(Words{"--help"}).verb, "help");
  EXPECT_EQ(parse_command_line(Words{"help"}).positional, "");
  EXPECT_EQ(parse_command_line(Words{"help", "run.seed"}).positional, "run.seed");
  for (const VerbSpec& verb : verbs()) {
    const CommandLine line = parse_command_line(Words{std::string(verb.name), "--help"});
    EXPECT_EQ(line.verb, "help");
    EXPECT_EQ(line.positional, verb.name);
  }
}

TEST(CommandLine, ArgcArgv) {
  const char* argv[] = {"temper", "check", "c.toml"};
  EXPECT_EQ(parse_command_line(3, argv).positional, "c.toml");
  for (const int none : {1, 0}) {  // no word behind the program, not even that: the overview
    EXPECT_EQ(parse_command_line(none, argv).verb, "help");
    EXPECT_EQ(parse_command_line(none, argv).positional, "");
  }
}

TEST(CommandLine, ValuesInOtherSpellingsAreUnderstood) {
  const CommandLine generate = parse_command_line(
      Words{"generate", "--model", "m", "--prompt", "BF16", "--dtype", "bfloat16", "--device=CUDA"});
  EXPECT_EQ(generate.text("--dtype"), "bf16");
  EXPECT_EQ(generate.text("--device"), "cuda");
  EXPECT_EQ(generate.text("--prompt"), "BF16") << "a text is what it is";
  const CommandLine exporting = parse_command_line(
      Words{"export", "--checkpoint", "c", "--out", "o", "--dtype", "Float16", "--shard-size", "2 gib"});
  EXPECT_EQ(exporting.text("--dtype"), "fp16");
  EXPECT_EQ(exporting.integer("--shard-size", 0), int64_t{2} << 30);
}

TEST(CommandLine, MistakesAreNamed) {
  const std::vector<std::pair<Words, Words>> cases = {
      {{"trian", "c"}, {"trian", "`train`"}},
      {{"--json"}, {"--json"}},
      {{"train"}, {"CONFIG"}},
      {{"train", ""}, {"CONFIG"}},
      {{"train", "a.toml", "b.toml"}, {"b.toml"}},
      {{"train", "a", "--repaly", "x"}, {"--repaly", "`--replay`"}},
      {{"train", "a", "--replay"}, {"--replay FILE"}},
      {{"train", "a", "--replay", "--dump-gradients", "x"}, {"--replay FILE"}},
      {{"train", "a", "-x"}, {"-x"}},
      {{"train", "a", "-="}, {"no option -"}},
      {{"train", "a", "--report-to", "wandb"}, {"--report-to", "metrics.jsonl"}},
      {{"train", "a", "--rollout-batch-size=32"}, {"`rollout.prompts_per_step`"}},
      {{"train", "a", "beta=0.1"}, {"`algorithm.kl_coef`"}},
      {{"train", "a", "wandb"}, {"wandb"}},
      {{"check", "a", "--ranks", "0"}, {"--ranks", "1 to 65536"}},
      {{"check", "a", "--ranks", "4x"}, {"--ranks", "integer"}},
      {{"check", "a", "--ranks", "99999999999999999999"}, {"--ranks"}},
      {{"check", "a", "--ranks", "2", "--ranks", "3"}, {"twice"}},
      {{"check", "a", "--ranks"}, {"--ranks N"}},
      {{"check", "a", "--json=1"}, {"--json"}},
      {{"check", "a", "--device-memory", "nan"}, {"--device-memory"}},
      {{"check", "a", "--device-memory", "-1"}, {"--device-memory"}},
      {{"check", "a", "--device-memory", "0GB"}, {"--device-memory"}},
      {{"check", "a", "--device-memory", "80gigs"}, {"--device-memory", "80GB", "GiB"}},
      {{"generate", "--model", "m"}, {"an option is missing", "--prompt or --prompts is not given"}},
      {{"generate", "--model", "m", "--prompt", "a", "--prompts", "b"}, {"exactly one"}},
      {{"generate", "--prompt", "a"}, {"--model DIR"}},
      {{"score", "--input", "f"}, {"--model DIR | --checkpoint DIR"}},
      {{"generate", "--model", "m", "--prompt", "a", "run.seed=1"}, {"rollout.key=value"}},
      {{"generate", "--model", "m", "--prompt", "a", "--device", "gpu"}, {"auto|cpu|cuda"}},
      {{"generate", "--model", "m", "--prompt", "a", "--dtype", "fp16"}, {"fp16"}},
      {{"generate", "--model", "m", "--prompt", "a", "--samples", "4097"}, {"--samples", "4096"}},
      {{"generate", "--model", "m", "--prompt", "a", "stray"}, {"stray"}},
      {{"score", "--model", "m", "--input", ""}, {"--input"}},
      {{"score", "--model", "m", "--input", "f", "run.seed=1"}, {"run.seed=1"}},
      {{"export", "--checkpoint", "c", "--out", "o", "--shard-size", "0"}, {"--shard-size"}},
      {{"export", "--checkpoint", "c", "--out", "o", "--shard-size", "5G"}, {"--shard-size", "5GB"}},
      {{"init", "--config", "c", "--out", "o", "--seed", "-1"}, {"--seed", "at least 0"}},
      {{"train", "c", "lr=1e-6"}, {"lr=1e-6", "`optimizer.lr`"}},
      {{"train", "c", "optimizer.lr"}, {"write optimizer.lr=VALUE"}},
      {{"train", "c", "d"}, {"\"d\""}},
      {{"generate", "--model", "m", "--prompt", "a", "max_new_tokens=4"}, {"`rollout.max_new_tokens`"}},
      {{"verify"}, {"--checkpoint DIR"}},
      {{"report"}, {"RUN..."}},
  };
  for (const auto& [words, named] : cases) {
    std::string label;
    for (const std::string& word : words) label += word + " ";
    expect_error(Exit::usage, named, label, [&] { parse_command_line(words); });
  }
}

TEST(CommandLine, NoArgumentsDoHarm) {
  Words pool{"train",    "check",   "generate", "--replay", "--ranks",  "3",  "c.toml",
             "run.a=1",  "--",      "-",        "--json",   "",         "=",  "--help",
             "--prompt", "--model", "help",     "\xff",     "--ranks=", "a=b"};
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    Words words;
    for (int n = static_cast<int>(random() % 7); n > 0; --n) words.push_back(pool[random() % pool.size()]);
    try {
      EXPECT_FALSE(parse_command_line(words).verb.empty());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::usage) << error.what();
    }
  }
}

TEST(Help, NamesEveryVerbOptionKeyAndExitCode) {
  const std::string overview = help_text("");
  for (const VerbSpec& verb : verbs()) {
    EXPECT_NE(overview.find(verb.name), std::string::npos);
    const std::string text = help_text(std::string(verb.name));
    EXPECT_NE(text.find(verb_usage(verb)), std::string::npos);
    for (const OptionSpec& option : verb.options)
      EXPECT_NE(text.find(option.name), std::string::npos) << option.name;
  }
  EXPECT_EQ(help_text("train").find("given to MPI_Abort"), std::string::npos)
      << "they have a page of their own";
  const std::string keys = help_text("keys", /*all=*/true);
  for (const KeyDoc& doc : config_key_docs()) {
    EXPECT_NE(keys.find(doc.key + "\n"), std::string::npos) << doc.key;
    const std::string one = help_text(doc.key);
    EXPECT_NE(one.find(doc.legal), std::string::npos);
    EXPECT_NE(one.find(doc.help), std::string::npos);
    EXPECT_NE(one.find(doc.unit), std::string::npos);
    EXPECT_NE(one.find("default:"), std::string::npos);
  }
  const std::string codes = help_text("exit-codes");
  for (const char* code :
       {"  0  ", " 64  ", " 65  ", " 70  ", " 73  ", " 74  ", " 75  ", " 76  ", " 77  ", " 78  "})
    EXPECT_NE(codes.find(code), std::string::npos) << code;
}

TEST(Help, EveryRewardWithItsOptions) {
  const std::string text = help_text("rewards");
  for (const RewardDoc& reward : reward_docs()) {
    EXPECT_NE(text.find(fmt::format("\n  {} ", reward.name)), std::string::npos) << reward.name;
    EXPECT_NE(text.find(reward.help), std::string::npos) << reward.name;
  }
  for (const char* option : {"method", "format_score", "max_tokens", "buffer_tokens", "factor", "argv",
                             "workers", "in_flight", "limit_seconds", "on_error"})
    EXPECT_NE(text.find(option), std::string::npos) << option;
  EXPECT_NE(help_text("").find("help rewards"), std::string::npos);
}

TEST(Help, KeysStandUnderTheirSectionsThoseOfLaterVersionsApart) {
  const std::string keys = help_text("keys"), all = help_text("keys", /*all=*/true);
  EXPECT_TRUE(keys.starts_with("[run]\n\nrun.name\n")) << keys.substr(0, 80);
  EXPECT_LT(keys.find("\n[rollout]\n"), keys.find("\nrollout.temperature\n"));
  for (const KeyDoc& doc : config_key_docs()) {
    EXPECT_EQ(keys.find("\n" + doc.key + "\n") == std::string::npos, doc.later) << doc.key;
    EXPECT_NE(all.find("\n" + doc.key + "\n"), std::string::npos) << doc.key;
  }
}

TEST(Help, OfTwoWordsIsRefusedUnlessTheyAreATopic) {
  for (const char* topic :
       {"a b", "completion bash zsh", "completion", "completion tcsh", "man man", "train check"})
    expect_error(Exit::usage, {topic}, topic, [&] { help_text(topic); });
}

TEST(Help, AMetricIsDescribedByItsPattern) {
  const auto described = [](std::string_view key) {
    return std::count_if(metric_docs().begin(), metric_docs().end(),
                         [&](const MetricDoc& doc) { return describes(doc, key); });
  };
  for (const char* key : {"step", "critic/score/mean", "train/grad_norm", "reward/length/mean",
                          "val/a b/pass@8", "val/a/score/max", "perf/peak_gb/train/host", "timing_s/gen"})
    EXPECT_GE(described(key), 1) << key;
  for (const char* key :
       {"steps", "critic/score", "critic/score/means", "reward/mean", "perf/peak_gb/train", ""})
    EXPECT_EQ(described(key), 0) << key;
  for (const MetricDoc& doc : metric_docs())
    EXPECT_NE(help_text("metrics").find(doc.help), std::string::npos) << doc.name;
}

TEST(Help, KeysThatPeopleTypeAreAnsweredWithTheRightOne) {
  for (const auto& [typed, right] : {std::pair{"learning_rate", "optimizer.lr"},
                                     {"optimizer.learning_rate", "optimizer.lr"},
                                     {"temp", "rollout.temperature"},
                                     {"rollout.temp", "rollout.temperature"},
                                     {"rollout.n", "rollout.samples_per_prompt"},
                                     {"rollout.max_tokens", "rollout.max_new_tokens"},
                                     {"algorithm.kl_loss_coef", "algorithm.kl_coef"}})
    EXPECT_NE(peer_key_hint(typed).find(fmt::format("`{}`", right)), std::string::npos) << typed;
  expect_error(Exit::usage, {"learning_rate=1", "`optimizer.lr`"}, "no section", [] {
    parse_command_line(Words{"train", "a.toml", "learning_rate=1"});
  });
  expect_error(Exit::usage, {"`rollout.temperature`"}, "topic", [] { help_text("temp"); });
}

TEST(Help, SectionsAndUnknownTopics) {
  EXPECT_NE(help_text("roles.trainer").find("roles.trainer.tp"), std::string::npos);
  EXPECT_EQ(help_text("optimizer").find("run.seed"), std::string::npos);
  EXPECT_NE(help_text("environment").find("no environment variables"), std::string::npos);
  expect_error(Exit::usage, {"`optimizer.lr`"}, "misspelt", [] { help_text("optimizer.lrr"); });
  expect_error(Exit::usage, {"`rollout`"}, "misspelt section", [] { help_text("rolout"); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
