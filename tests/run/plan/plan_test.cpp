// The plan: golden batch arithmetic, every rule, exhaustive small ranges, and that every proposed value
// helps.

#include "src/run/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/config/values.h"
#include "src/run/plan/batch.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/report/plan_json.h"
#include "src/run/plan/report/planned_parts.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

PlanResult plan_of(const std::vector<std::string>& overrides, int ranks = 1,
                   const std::string& text = kMinimalConfig) {
  const ConfigReading reading = read_text(text, overrides);
  EXPECT_TRUE(reading.errors.empty()) << reading.errors[0].key << ": " << reading.errors[0].message;
  return try_plan(reading.loaded.config, ranks, small_model());
}

std::string all_errors(const PlanResult& result) {
  std::string text;
  for (const PlanError& error : result.errors) text += error.key + ": " + error.message + "\n";
  return text;
}

struct BatchCase {
  const char* overrides;  // separated by spaces
  int64_t samples, per_update, updates, total, last, dropped;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, space - at));
    at = space + 1;
  }
  return words;
}

TEST(Plan, GoldenBatches) {  // 4 prompts x 8 samples, 10 steps unless overridden
  const BatchCase cases[] = {
      {"", 32, 32, 1, 10, 32, 0},
      {"train.updates_per_step=4", 32, 8, 4, 40, 8, 0},
      {"train.samples_per_update=8", 32, 8, 4, 40, 8, 0},
      {"train.samples_per_update=8 train.updates_per_step=4", 32, 8, 4, 40, 8, 0},
      {"train.samples_per_update=16 train.epochs_per_step=3", 32, 16, 2, 60, 16, 0},
      {"train.samples_per_update=5 train.last_partial=keep", 32, 5, 7, 70, 2, 0},
      {"train.samples_per_update=5 train.last_partial=drop", 32, 5, 6, 60, 5, 2},
      {"train.updates_per_step=5 train.last_partial=keep", 32, 7, 5, 50, 4, 0},
      {"train.updates_per_step=5 train.last_partial=drop", 32, 6, 5, 50, 6, 2},
      {"train.samples_per_update=100 train.last_partial=keep", 32, 32, 1, 10, 32, 0},
      {"rollout.prompts_per_step=1 rollout.samples_per_prompt=3 train.updates_per_step=3", 3, 1, 3, 30, 1, 0},
      {"rollout.prompts_per_step=512 rollout.samples_per_prompt=16 train.samples_per_update=2048", 8192, 2048,
       4, 40, 2048, 0},
  };
  for (const BatchCase& c : cases) {
    SCOPED_TRACE(c.overrides);
    const PlanResult result = plan_of(split(c.overrides), 3);
    ASSERT_TRUE(result.errors.empty()) << all_errors(result);
    const BatchPlan& b = result.plan.batch;
    EXPECT_EQ(b.samples_per_step, c.samples);
    EXPECT_EQ(b.samples_per_update, c.per_update);
    EXPECT_EQ(b.updates_per_step, c.updates);
    EXPECT_EQ(b.updates_total, c.total);
    EXPECT_EQ(b.last_update_samples, c.last);
    EXPECT_EQ(b.dropped_samples, c.dropped);
  }
}

TEST(Plan, SupervisedBatch) {
  const PlanResult result = plan_of({"train.updates_per_step=3", "train.epochs_per_step=2"}, 2, kMinimalSft);
  ASSERT_TRUE(result.errors.empty()) << all_errors(result);
  EXPECT_EQ(result.plan.batch.samples_per_step, 24);
  EXPECT_EQ(result.plan.batch.updates_total, 2 * 3 * 2);
  EXPECT_EQ(result.plan.cache.pages, 0);
  EXPECT_EQ(result.plan.lengths.longest, 1024);
  ASSERT_EQ(result.plan.roles.size(), 1u);
  EXPECT_EQ(result.plan.roles[0].name(), "trainer");
}

/// Every sample of a step is in exactly one update or dropped, whatever the numbers; errors propose what
/// helps.
TEST(Plan, ExhaustiveSmallBatches) {
  int good = 0, bad = 0;
  Config c = load_text(kMinimalConfig).config;
  c.rollout.samples_per_prompt = 2;
  for (const char* partial : {"error", "keep", "drop"})
    for (int64_t prompts = 1; prompts <= 9; ++prompts)
      for (int64_t size = 0; size <= 20; ++size)
        for (int64_t updates = 0; updates <= 20; ++updates) {
          c.train.last_partial = partial;
          c.rollout.prompts_per_step = prompts;
          c.train.samples_per_update = size > 0 ? std::optional(size) : std::nullopt;
          c.train.updates_per_step = updates > 0 ? std::optional(updates) : std::nullopt;
          std::vector<PlanError> errors;
          const BatchPlan b = plan_batch(c, errors);
          if (errors.empty()) {
            ++good;
            ASSERT_GE(b.samples_per_update, 1);
            ASSERT_GE(b.updates_per_step, 1);
            ASSERT_GE(b.last_update_samples, 1);
            ASSERT_LE(b.last_update_samples, b.samples_per_update);
            ASSERT_EQ(
                b.samples_per_update * (b.updates_per_step - 1) + b.last_update_samples + b.dropped_samples,
                2 * prompts);
            ASSERT_EQ(b.updates_total, 10 * b.updates_per_step);
            ASSERT_TRUE(updates == 0 || b.updates_per_step == updates);
            ASSERT_TRUE(c.train.last_partial != "error" ||
                        b.samples_per_update * b.updates_per_step == 2 * prompts);
            continue;
          }
          ++bad;
          ASSERT_EQ(errors.size(), 1u);
          ASSERT_FALSE(errors[0].legal.empty()) << errors[0].message;
          for (const Json& legal : errors[0].legal) {
            Config better = c;
            auto& key = errors[0].key == "train.samples_per_update" ? better.train.samples_per_update
                                                                    : better.train.updates_per_step;
            key = legal.get<int64_t>();
            std::vector<PlanError> left;
            plan_batch(better, left);
            for (const PlanError& e : left)
              ASSERT_NE(e.key, errors[0].key) << e.message << " after " << errors[0].message;
          }
        }
  EXPECT_GT(good, 500);
  EXPECT_GT(bad, 500);
}

TEST(Plan, NearestDivisors) {
  for (int64_t n = 1; n <= 60; ++n)
    for (int64_t x = 1; x <= 70; ++x) {
      std::vector<int64_t> wanted;
      for (int64_t d = std::min(x, n); d >= 1 && wanted.empty(); --d)
        if (n % d == 0) wanted.push_back(d);
      for (int64_t d = x; d <= n; ++d)
        if (n % d == 0) {
          if (d != wanted[0]) wanted.push_back(d);
          break;
        }
      EXPECT_EQ(nearest_divisors(n, x), wanted) << n << " " << x;
    }
}

struct Broken {
  const char* overrides;
  const char* key;
  const char* words;
  int ranks = 1;
  const char* text = kMinimalConfig;
};

const char* const kWithoutRewards =
    "run = {name = \"t\", steps = 10}\nmodel.path = \"m\"\noptimizer.lr = 1e-6\ndata.train = \"d\"\n"
    "rollout = {prompts_per_step = 4, samples_per_prompt = 8, max_new_tokens = 16}\n";

const Broken kBroken[] = {
    {"train.samples_per_update=5", "train.samples_per_update", "not a multiple"},
    {"train.updates_per_step=5", "train.updates_per_step", "do not divide"},
    {"train.updates_per_step=33", "train.updates_per_step", "a step has 32"},
    {"train.samples_per_update=8 train.updates_per_step=2", "train.updates_per_step", "make 4 updates"},
    {"train.samples_per_update=5 train.updates_per_step=4", "train.samples_per_update", "not a multiple"},
    {"train.samples_per_update=64 train.last_partial=drop", "train.samples_per_update", "drop them all"},
    {"train.updates_per_step=31 train.last_partial=keep", "train.updates_per_step", "make only 16"},
    {"rollout.prompts_per_step=1000000 rollout.samples_per_prompt=4000", "rollout.prompts_per_step",
     "2147483647"},
    {"rollout.prompts_per_step=1000000000 rollout.samples_per_prompt=2 train.updates_per_step=2000000000 "
     "train.epochs_per_step=2000000000",
     "train.epochs_per_step", "updates"},
    {"run.steps=1000000000000 train.epochs_per_step=10000000", "run.steps", "updates"},
    {"run.steps=18000000 rollout.prompts_per_step=1000000", "run.steps", "random numbers for 17592186044416"},
    {"run.steps=9000000 rollout.prompts_per_step=1000000 rollout.dynamic_sampling_rounds=1", "run.steps",
     "2000000 prompts"},
    {"rollout.samples_per_prompt=1", "algorithm.single_group", "leaves all of them out"},
    {"rollout.samples_per_prompt=1 algorithm.advantage=pass@k", "rollout.samples_per_prompt",
     "compares samples"},
    {"algorithm.loss=reinforce algorithm.clip_high=0.3", "algorithm.clip_high",
     "does not read it, and it is 0.3"},
    {"algorithm.loss=gspo algorithm.dual_clip=3", "algorithm.dual_clip", "\"gspo\" does not read it"},
    {"roles.teacher.path=t rollout.dynamic_sampling_rounds=2", "rollout.dynamic_sampling_rounds",
     "with a teacher alone", 1, kWithoutRewards},
    {"algorithm.dual_clip=0.5", "algorithm.dual_clip", "more than 1"},
    {"algorithm.advantage=rloo algorithm.advantage_std=none", "algorithm.advantage_std", "does not read it"},
    {"algorithm.gamma=0.9", "algorithm.gamma", "\"grpo\" does not read it"},
    {"algorithm.importance_bounds=[2,1]", "algorithm.importance_bounds", "no lowest weight"},
    {"algorithm.importance_bounds=[1]", "algorithm.importance_bounds", "no lowest weight"},
    {"algorithm.tis_cap=0 algorithm.importance=sequence", "algorithm.importance", "tis_cap = 0"},
    {"algorithm.tis_cap=0 algorithm.reject_token_below=1e-4", "algorithm.reject_token_below", "tis_cap = 0"},
    {"algorithm.advantage=gdpo algorithm.kl_in=reward algorithm.kl_coef=0.1", "algorithm.kl_in",
     "parts of the"},
    {"rollout.max_new_tokens=1024", "rollout.max_new_tokens", "no room for a prompt"},
    {"rollout.max_prompt_tokens=1010", "rollout.max_prompt_tokens", "more than the context of 1024"},
    {"model.context_tokens=2000", "model.context_tokens", "made for 1024"},
    {"model.context_tokens=16", "rollout.max_new_tokens", "context of 16"},
    {"rollout.stop_token_ids=[5,100]", "rollout.stop_token_ids", "vocabulary of 100"},
    {"rollout.min_new_tokens=17", "rollout.min_new_tokens", "rollout.max_new_tokens = 16: it is 17"},
    {"train.max_tokens_per_microbatch=1000", "train.max_tokens_per_microbatch", "can have 1024 tokens"},
    {"rollout.kv_page_tokens=40", "rollout.kv_page_tokens", "multiple of 16"},
    {"rollout.kv_memory=100000", "rollout.kv_memory", "one sequence can have 1024"},
    {"optimizer.master=remainder", "optimizer.master", "fp32 weights are their own master"},
    {"optimizer.master=remainder run.dtype=fp64", "optimizer.master", "fp64 weights are their own master"},
    {"optimizer.state=bf16 run.dtype=fp64", "optimizer.state", "moments in fp64"},
    {"validation.every=2", "validation.every", "names no file"},
    {"validation.every=2 validation.data=v validation.rollout.max_new_tokens=2000",
     "validation.rollout.max_new_tokens", "context of 1024"},
    {"validation.every=2", "validation.every", "names no file", 1, kMinimalSft},
    {"validation.every=2 validation.data=v reward.functions=exact", "validation.rollout.max_new_tokens",
     "neither", 1, kMinimalSft},
    {"reward.functions=exakt", "reward.functions", "exact"},
    {"reward.functions=length", "reward.functions", "max_tokens"},
    {"reward.functions=[{name=\"exact\",tolerance=1}]", "reward.functions", "tolerance"},
    {"algorithm.aggregation=seq-mean-token-sum-norm", "algorithm.aggregation", "no rollout", 1, kMinimalSft},
    {"train.samples_per_update=2000000000 train.updates_per_step=2", "train.updates_per_step", "2147483647",
     1, kMinimalSft},
    {"roles.trainer.ranks=0-1", "roles.trainer.ranks", "2 of 4 ranks have no role: 2-3", 4},
    {"roles.trainer.ranks=0-8", "roles.trainer.ranks", "names rank 8", 4},
    {"roles.trainer.ranks=0,0", "roles.trainer.ranks", "more than once", 4},
    {"roles.trainer.ranks=x", "roles.trainer.ranks", "no rank", 4},
    {"roles.rollout.ranks=9", "roles.rollout.ranks", "names rank 9", 4},
    {"roles.trainer.tp=3", "roles.trainer.tp", "4 trainer ranks do not divide into groups of 3", 4},
    {"roles.trainer.tp=8", "roles.trainer.tp", "do not divide", 4},
    {"profile.steps=0-2", "profile.steps", "steps from 1 to", 1},
    {"profile.steps=5-3", "profile.steps", "steps from 1 to", 1},
    {"roles.rollout.ranks=0 roles.trainer.ranks=2-3", "roles.trainer.ranks", "1 of 4 ranks have no role: 1",
     4},
    {"roles.reference.ranks=2 algorithm.kl_coef=0.1", "roles.reference.ranks", "names rank 2", 2},
};

TEST(Plan, EveryRuleNamesItsKeyAndProposesWhatHelps) {
  for (const Broken& broken : kBroken) {
    SCOPED_TRACE(broken.overrides);
    const std::vector<std::string> overrides = split(broken.overrides);
    const PlanResult result = plan_of(overrides, broken.ranks, broken.text);
    ASSERT_EQ(result.errors.size(), 1u) << all_errors(result);
    const PlanError& error = result.errors[0];
    EXPECT_EQ(error.key, broken.key);
    EXPECT_NE(error.message.find(broken.words), std::string::npos) << error.message;
    ASSERT_FALSE(error.legal.empty()) << error.message;
    for (const Json& legal : error.legal) {
      std::vector<std::string> better = overrides;
      better.push_back(error.key + "=" + toml_text(legal));
      const PlanResult left = plan_of(better, broken.ranks, broken.text);
      for (const PlanError& e : left.errors) EXPECT_NE(e.key, error.key) << legal.dump() << ": " << e.message;
    }
    EXPECT_TRUE(result.plan.memory.empty());
  }
}

TEST(Plan, BiasOfAnIdBeyondTheVocabulary) {
  const PlanResult result = plan_of({"rollout.logit_bias={3=1,100=1}"});
  ASSERT_EQ(result.errors.size(), 1u) << all_errors(result);
  EXPECT_EQ(all_errors(result), "rollout.logit_bias: id 100 is beyond the vocabulary of 100\n");
  EXPECT_TRUE(plan_of({"rollout.logit_bias={3=1,99=1}", "rollout.min_new_tokens=16"}).errors.empty());
}

TEST(Plan, ReportsSeveralErrorsAtOnce) {
  const PlanResult result = plan_of({"train.samples_per_update=5", "roles.trainer.ranks=7",
                                     "rollout.kv_memory=1", "reward.functions=nothing"});
  EXPECT_EQ(result.errors.size(), 4u) << all_errors(result);
  expect_error(Exit::usage, {"2 errors", "train.samples_per_update", "command line", "rollout.kv_memory"},
               "make_plan", [] {
                 make_plan(load_text(kMinimalConfig, {"train.samples_per_update=5", "rollout.kv_memory=1"}),
                           1, small_model());
               });
}

TEST(Plan, LengthsAndCache) {
  const PlanResult automatic = plan_of({});
  const RunPlan& plan = automatic.plan;
  EXPECT_EQ(plan.lengths.max_prompt, 1008);
  EXPECT_EQ(plan.lengths.longest, 1024);
  EXPECT_EQ(plan.max_tokens_per_microbatch, 4096);
  EXPECT_EQ(plan.cache.page_bytes, 2 * 2 * 32 * 16 * 4);   // keys and values, layers, width, tokens, bytes
  EXPECT_EQ(plan.cache.pages, 32 * 64);                    // all samples of the step at full length
  EXPECT_EQ(plan_of({}, 3).plan.cache.pages, 2 * 8 * 64);  // at most two of the four prompts on one rank
  EXPECT_EQ(plan_of({"rollout.max_running_sequences=5"}).plan.cache.pages, 5 * 64);
  EXPECT_EQ(plan_of({"validation.data=v"}).plan.cache.pages, 256 * 64);
  EXPECT_EQ(plan_of({"validation.data=v", "validation.max_prompts=50"}).plan.cache.pages, 50 * 64);
  EXPECT_EQ(plan.dtype, DType::f32);
  EXPECT_EQ(plan.device, Device::cpu);

  ModelConfig large = small_model();
  large.max_position_embeddings = 10000;
  large.num_heads = large.num_kv_heads = 256;
  large.num_layers = 4;
  const RunPlan capped = try_plan(load_text(kMinimalConfig).config, 1, large).plan;
  EXPECT_EQ(capped.max_tokens_per_microbatch, 10000);
  EXPECT_EQ(capped.cache.pages, 2 * kGiB / capped.cache.page_bytes);
  EXPECT_LT(capped.cache.pages, 32 * 625);

  large.num_layers = 2000;  // one sequence alone needs more than the cap
  EXPECT_EQ(try_plan(load_text(kMinimalConfig).config, 1, large).plan.cache.pages, 625);

  const RunPlan given =
      plan_of({"rollout.max_prompt_tokens=16", "rollout.kv_memory=80000", "run.dtype=bf16"}).plan;
  EXPECT_EQ(given.lengths.longest, 32);
  EXPECT_EQ(given.cache.page_bytes, 4096);
  EXPECT_EQ(given.cache.pages, 19);
}

TEST(Plan, ValidationLengths) {
  const RunPlan plan = plan_of({"validation.data=v", "validation.rollout.max_new_tokens=500"}).plan;
  EXPECT_TRUE(plan.validation.generates);
  EXPECT_EQ(plan.validation.sets.at(0).max_new, 500);
  EXPECT_EQ(plan.validation.longest, 1024);
  EXPECT_EQ(plan.validation.max_prompt, 524);
  EXPECT_FALSE(plan_of({}).plan.validation.generates);
  const RunPlan sft =
      plan_of({"validation.data=v", "validation.every=1", "validation.rollout.max_new_tokens=24",
               "rollout.max_prompt_tokens=40", "reward.functions=exact"},
              1, kMinimalSft)
          .plan;
  EXPECT_EQ(sft.cache.pages, 256 * 4);
}

TEST(Plan, Roles) {
  const PlanResult result =
      plan_of({"algorithm.kl_coef=0.1", "roles.trainer.ranks=0-2", "cluster.idle_ranks=allow"}, 4);
  ASSERT_TRUE(result.errors.empty()) << all_errors(result);
  ASSERT_EQ(result.plan.roles.size(), 3u);
  EXPECT_EQ(result.plan.roles[0].name(), "rollout");
  EXPECT_EQ(result.plan.roles[1].name(), "reference");
  EXPECT_EQ(result.plan.roles[2].ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(result.plan.num_scorers(), 1);
  ASSERT_FALSE(result.warnings.empty());
  EXPECT_NE(result.warnings[0].find("1 of 4 ranks have no role: 3"), std::string::npos);
  EXPECT_EQ(plan_of({"roles.rollout.ranks=\"0,1\"", "roles.trainer.ranks=0-1"}, 2).errors.size(), 0u);
}

TEST(Plan, RolesOnRanksOfTheirOwn) {
  const PlanResult result =
      plan_of({"algorithm.kl_coef=0.1", "roles.rollout.ranks=0-1", "roles.reference.ranks=2",
               "roles.trainer.ranks=1,3", "run.max_policy_lag=2"},
              4);
  ASSERT_TRUE(result.errors.empty()) << all_errors(result);
  const RunPlan& plan = result.plan;
  EXPECT_EQ(plan.max_policy_lag, 2);
  EXPECT_EQ(plan.weight_receivers(), std::vector<int>{0});
  EXPECT_EQ(plan.weights.bytes, plan.num_parameters * 4);
  std::map<int, std::set<std::string>> held, phases;
  for (const MemoryRow& row : plan.memory) {
    for (const int rank : row.ranks) phases[rank].insert(row.phase);
    for (const int rank : row.ranks)
      for (const auto& part : row.all_parts()) held[rank].insert(part.first);
  }
  EXPECT_EQ(phases[0], (std::set<std::string>{"generate"}));
  EXPECT_EQ(phases[1], (std::set<std::string>{"generate", "train", "save"}));
  EXPECT_EQ(phases[2], (std::set<std::string>{"reference"}));
  EXPECT_TRUE(held[0].contains("kv_cache") && !held[0].contains("optimizer"));
  EXPECT_TRUE(held[2].contains("reference_weights") && !held[2].contains("weights"));
  EXPECT_TRUE(held[3].contains("optimizer") && !held[3].contains("kv_cache"));
}

bool warns(const PlanResult& result, const std::string& words) {
  return std::any_of(result.warnings.begin(), result.warnings.end(),
                     [&](const std::string& w) { return w.find(words) != std::string::npos; });
}

TEST(Plan, Warnings) {
  EXPECT_TRUE(plan_of({}).warnings.empty());
  EXPECT_TRUE(
      warns(plan_of({"rollout.prompts_per_step=1"}, 8), "88 % of the ranks are idle while generating"));
  EXPECT_TRUE(warns(plan_of({"train.samples_per_update=4"}, 8), "50 % of the ranks are idle while training"));
  EXPECT_TRUE(warns(plan_of({"rollout.temperature=0"}), "all advantages are 0"));
  EXPECT_TRUE(warns(plan_of({"optimizer.lr=0"}), "never change"));
  EXPECT_TRUE(warns(plan_of({"checkpoint.every=11"}), "beyond the last step"));
  EXPECT_TRUE(warns(plan_of({"train.samples_per_update=5", "train.last_partial=drop"}),
                    "2 of 32 samples are left out"));
  EXPECT_TRUE(warns(plan_of({"rollout.prompts_per_step=3"}, 1, kMinimalSft), "no effect on sft"));
  const char* ignored = ": tokens are not drawn from the policy alone";
  for (const char* on : {"top_k=5", "top_p=0.9", "min_p=0.1", "repetition_penalty=1.1", "presence_penalty=1",
                         "frequency_penalty=-1", "logit_bias={4=1}", "min_new_tokens=2"}) {
    const std::string key = std::string("rollout.") + on;
    EXPECT_TRUE(warns(plan_of({key}), key.substr(0, key.find('=')) + ignored)) << on;
  }
  EXPECT_TRUE(warns(plan_of({"rollout.top_k=5", "rollout.presence_penalty=1", "rollout.temperature=0"}),
                    "rollout.presence_penalty: tokens"))
      << "greedy sampling has no filters";
}

TEST(Plan, MemoryAddsUp) {
  const PlanResult result = plan_of({"algorithm.kl_coef=0.1", "run.dtype=bf16"}, 2);
  ASSERT_EQ(result.plan.memory.size(), 8u);
  for (const MemoryRow& row : result.plan.memory) {
    int64_t sum = 0;
    for (const auto& [name, bytes] : row.all_parts()) sum += bytes;
    EXPECT_EQ(sum, row.host_bytes);
    EXPECT_EQ(row.device_bytes, 0);
  }
  const auto part = [&](const std::string& name) {
    for (const auto& [key, bytes] : result.plan.memory[0].all_parts())
      if (key == name) return bytes;
    return int64_t{-1};
  };
  const int64_t parameters = result.plan.num_parameters;
  EXPECT_EQ(part("weights"), parameters * 2);
  EXPECT_EQ(part("reference_weights"), parameters * 2 + part("rope_tables"));
  EXPECT_EQ(part("rope_tables"), 1024 * 16 * 4);
  EXPECT_EQ(part("gradients"), parameters * 4);
  EXPECT_NEAR(static_cast<double>(part("optimizer")), static_cast<double>(parameters) / 2 * 12, 10000);
  EXPECT_EQ(part("kv_cache"), result.plan.cache.pages * result.plan.cache.page_bytes);
}

TEST(Plan, ResponsesOfSeveralSteps) {
  const std::vector<std::string> base{"rollout.max_new_tokens=100"};
  const auto with = [&](const std::string& key) { return plan_of({base[0], key}); };
  for (const auto& [tokens, steps] : std::map<int, int>{{0, 1}, {33, 4}, {50, 2}, {99, 2}, {100, 1}})
    EXPECT_EQ(with(fmt::format("rollout.tokens_per_step={}", tokens)).plan.lengths.steps_of_longest_response,
              steps);
  const auto part = [](const PlanResult& result, const std::string& name) {
    for (const auto& [of, bytes] : result.plan.memory.front().all_parts())
      if (of == name) return bytes;
    return int64_t{0};
  };
  const PlanResult cut = with("rollout.tokens_per_step=33"), whole = with("rollout.tokens_per_step=0");
  EXPECT_GT(part(cut, "trajectories"), 0);
  EXPECT_EQ(part(cut, "unfinished"), 3 * part(cut, "trajectories")) << "prompts of three steps before";
  EXPECT_EQ(part(whole, "unfinished"), 0);
  EXPECT_EQ(cut.warnings.size(), whole.warnings.size() + 1);
  EXPECT_NE(plan_tables(cut, {.all = true}).find("steps of a response"), std::string::npos);
  EXPECT_EQ(plan_tables(whole, {.all = true}).find("steps of a response"), std::string::npos);
  EXPECT_EQ(with("rollout.tokens_per_step=100").warnings.size(), whole.warnings.size() + 1) << "no effect";
}

TEST(Plan, ReplacedPromptsNeedRewardsThatCanDiffer) {
  const std::string on = "rollout.dynamic_sampling_rounds=3";
  EXPECT_TRUE(plan_of({on}).errors.empty()) << all_errors(plan_of({on}));
  for (const char* other : {"rollout.samples_per_prompt=1", "rollout.temperature=0"}) {
    const PlanResult result = plan_of({on, other, "algorithm.single_group=zero"});
    ASSERT_EQ(result.errors.size(), 1u) << all_errors(result);
    EXPECT_EQ(result.errors[0].key, "rollout.dynamic_sampling_rounds");
    EXPECT_EQ(result.errors[0].legal, std::vector<Json>{0});
  }
}

TEST(Plan, MemoryLimitProposesWhatFits) {
  const ConfigReading reading = read_text(kMinimalConfig);
  const int64_t peak = peak_bytes(try_plan(reading.loaded.config, 1, small_model()).plan);
  EXPECT_TRUE(try_plan(reading.loaded.config, 1, small_model(), {{peak}, {}}).errors.empty());
  int proposed = 0, hopeless = 0;
  for (int64_t limit = peak - 1; limit > 1000; limit = limit * 3 / 4) {
    const PlanResult result = try_plan(reading.loaded.config, 1, small_model(), {{limit}, {}});
    ASSERT_EQ(result.errors.size(), 1u);
    const PlanError& error = result.errors[0];
    if (error.legal.empty()) ++hopeless;
    EXPECT_EQ(error.legal.empty(), error.message.find("no single key") != std::string::npos) << error.message;
    for (const Json& legal : error.legal) {
      const ConfigReading better = read_text(kMinimalConfig, {error.key + "=" + toml_text(legal)});
      const PlanResult fits = try_plan(better.loaded.config, 1, small_model(), {{limit}, {}});
      EXPECT_TRUE(fits.errors.empty()) << error.key << " " << legal.dump() << " " << all_errors(fits);
      ++proposed;
    }
  }
  EXPECT_GT(proposed, 1);
  EXPECT_GT(hopeless, 1);
}

TEST(Plan, MemoryHasARowPerPhaseWhosePartsAddUp) {
  const PlanResult result = plan_of(
      {"validation.data=v", "validation.every=5", "algorithm.kl_coef=0.1", "checkpoint.export_hf_every=5"},
      2);
  std::vector<std::string> phases;
  for (const MemoryRow& row : result.plan.memory) {
    if (row.ranks.front() == 0) phases.push_back(row.phase);
    int64_t sum = 0;
    for (const auto& [name, bytes] : row.all_parts()) sum += bytes;
    EXPECT_EQ(sum, row.host_bytes) << row.phase;
    EXPECT_EQ(row.all_parts().front().first, "process");
  }
  EXPECT_EQ(phases,
            (std::vector<std::string>{"generate", "reference", "train", "validation", "save", "export"}));
}

/// What a rank that gets no memory is told: its own row, whatever the other ranks hold.
TEST(Plan, PartsOfARankAndPhase) {
  const RunPlan plan =
      plan_of({"run.device=cuda", "roles.rollout.ranks=0", "roles.trainer.ranks=1-2"}, 3).plan;
  const std::string trains = planned_parts(plan, 1, "train"), loads = planned_parts(plan, 1, "load"),
                    generates = planned_parts(plan, 0, "load");
  EXPECT_TRUE(trains.starts_with("planned for rank 1 in train:\n    GPU memory ")) << trains;
  for (const char* part :
       {"\n      gradients ", "\n      optimizer ", "\n    host memory ", "\n      process "})
    EXPECT_NE(trains.find(part), std::string::npos) << part << " in\n" << trains;
  EXPECT_EQ(trains.find("kv_cache"), std::string::npos) << trains;
  EXPECT_TRUE(loads.starts_with("planned for rank 1 in its largest phase, train:\n")) << loads;
  EXPECT_NE(generates.find("kv_cache"), std::string::npos) << generates;
  EXPECT_EQ(generates.find("optimizer"), std::string::npos) << generates;
}

TEST(Plan, ProcessGrowsWithTheVocabulary) {
  RunPlan plan = plan_of({}, 1).plan;
  const int64_t small = process_bytes(plan, 0);
  plan.vocab_size += 1000;
  EXPECT_EQ(process_bytes(plan, 0) - small, 160'000);
}

TEST(Plan, HugeModelsDoNotOverflow) {
  ModelConfig huge = small_model();
  huge.vocab_size = huge.hidden_size = huge.intermediate_size = 1 << 20;
  huge.num_layers = 512;
  const PlanResult result = try_plan(load_text(kMinimalConfig).config, 2, huge, {{kGiB}, {}});
  EXPECT_EQ(result.errors.size(), 1u);
  for (const MemoryRow& row : result.plan.memory) EXPECT_GT(row.host_bytes, kGiB);
}

TEST(Plan, JsonHasTheShapeOfTheContract) {
  const PlanResult result = plan_of({"train.samples_per_update=8", "train.epochs_per_step=2"}, 2);
  const Json json = plan_json(result, {});
  EXPECT_EQ(json["ok"], true);
  EXPECT_TRUE(json["errors"].empty() && json["errors"].is_array());
  EXPECT_TRUE(json["warnings"].is_array());
  EXPECT_EQ(json["batch"]["prompts_per_step"], 4);
  EXPECT_EQ(json["batch"]["samples_per_prompt"], 8);
  EXPECT_EQ(json["batch"]["samples_per_step"], 32);
  EXPECT_EQ(json["batch"]["samples_per_update"], 8);
  EXPECT_EQ(json["batch"]["updates_per_step"], 4);
  EXPECT_EQ(json["batch"]["epochs_per_step"], 2);
  EXPECT_EQ(json["batch"]["updates_total"], 80);
  EXPECT_EQ(json["roles"]["trainer"]["ranks"], (Json{0, 1}));
  EXPECT_EQ(json["roles"]["rollout"]["layout"]["dp"], 2);
  ASSERT_EQ(json["memory"].size(), 6u);
  EXPECT_EQ(json["memory"][0]["rank"], 0);
  EXPECT_EQ(json["memory"][0]["phase"], "generate");
  for (const char* key : {"device_bytes", "host_bytes", "parts"})
    EXPECT_TRUE(json["memory"][0].contains(key)) << key;

  const Json broken = plan_json(plan_of({"train.samples_per_update=5"}), {});
  EXPECT_EQ(broken["ok"], false);
  EXPECT_EQ(broken["errors"][0]["key"], "train.samples_per_update");
  EXPECT_EQ(broken["errors"][0]["legal"], (Json{4, 8}));
  EXPECT_TRUE(broken["errors"][0]["message"].is_string());
  for (const char* key : {"batch", "roles", "memory", "warnings"}) EXPECT_TRUE(broken.contains(key)) << key;
}

TEST(Plan, TextShowsTheDerivation) {
  ReportOptions options{.ranks_per_node = 2, .memory_limit = kGiB, .explain_batch = true, .all = true};
  const std::string text = plan_tables(plan_of({"train.samples_per_update=8"}, 4), options);
  for (const char* words :
       {"prompts_per_step x samples_per_prompt = 4 x 8", "updates_per_step = 32 / 8",
        "steps x updates_per_step x epochs_per_step = 10 x 4 x 1", "ranks 0-3", "node 1", "kv_cache",
        "ppo_mini_batch_size", "num_return_sequences_in_group", "= 1 prompts"})
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
}

TEST(Plan, MissingPathsAreNamed) {
  const Config c =
      load_text(kMinimalConfig, {"checkpoint.resume=/nowhere/run", "validation.data=/nowhere/v.jsonl"})
          .config;
  const std::vector<PlanError> errors = validate_paths(c);
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_EQ(errors[0].key, "model.path");
  EXPECT_NE(errors[0].message.find("models/tiny"), std::string::npos);
  EXPECT_EQ(errors[1].key, "data.train");
  EXPECT_EQ(errors[2].key, "validation.data");
  EXPECT_EQ(errors[3].key, "checkpoint.resume");
  EXPECT_EQ(errors[3].legal, (std::vector<Json>{"auto", "none"}));
}

TEST(Plan, FactsOfAModel) {
  ModelConfig c;
  c.vocab_size = 100;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.max_position_embeddings = 64;
  c.tie_word_embeddings = true;
  const int64_t layer = (16 + 2 * 8) * 8 + 8 * 16 + 3 * 8 * 12 + 2 * 8;
  EXPECT_EQ(num_parameters(c), 100 * 8 + 2 * layer + 8);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
