// What a plan says of layouts: which of them fit where the memory does not suffice, and what ranks that share
// a model send between nodes.

#include <gtest/gtest.h>

#include "src/run/plan/axis_traffic.h"
#include "src/run/plan/memory/memory.h"
#include "tests/config/config_text.h"

namespace temper {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

/// The shapes of Qwen3-32B.
ModelConfig large_model() {
  return {.family = "qwen3",
          .vocab_size = 151936,
          .hidden_size = 5120,
          .intermediate_size = 25600,
          .num_layers = 64,
          .num_heads = 64,
          .num_kv_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 40960,
          .qk_norm = true,
          .rope = {},
          .eos_token_ids = {}};
}

PlanResult plan_of(int ranks, int64_t gib, std::vector<std::string> keys) {
  for (const char* key : {"run.device=cuda", "model.context_tokens=1024", "rollout.prompts_per_step=32"})
    keys.emplace_back(key);
  return try_plan(load_text(kMinimalConfig, keys).config, ranks, large_model(),
                  {.device = {gib * kGiB}, .host = {}});
}

/// The word behind `key` and a separator; empty: it is not there.
std::string value_of(const std::string& message, const std::string& key) {
  const size_t at = message.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = message.find_first_not_of(" =", at + key.size());
  return message.substr(begin, message.find(' ', begin) - begin);
}

TEST(LayoutAdvice, TheFewestMoreRanksThatShareTheModel) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"roles.trainer.tp", {}},
      {"roles.trainer.pp", {"roles.rollout.tp=8"}},
      {"roles.rollout.tp", {"roles.trainer.tp=8", "roles.rollout.tp=1"}},
      {"roles.rollout.pp", {"roles.trainer.tp=8", "roles.rollout.tp=1"}}};
  for (const auto& [key, keys] : cases) {
    const int64_t gib = std::string(key).find("roles.rollout") == 0 ? 80 : 141;
    const PlanResult result = plan_of(8, gib, keys);
    ASSERT_EQ(result.errors.size(), 1u) << key;
    const std::string& message = result.errors.front().message;
    const std::string value = value_of(message, key);
    ASSERT_FALSE(value.empty()) << key << ": " << message;
    const auto fits = [&](int number) {
      std::vector<std::string> with = keys;
      with.push_back(fmt::format("{}={}", key, number));
      return plan_of(8, gib, with).errors.empty();
    };
    EXPECT_TRUE(fits(std::stoi(value))) << message;
    EXPECT_FALSE(fits(std::stoi(value) / 2)) << message;
  }
}

TEST(LayoutAdvice, SeveralKeysWhereNoneDoesAlone) {
  const PlanResult result = plan_of(8, 32, {});
  ASSERT_EQ(result.errors.size(), 1u);
  const std::string& message = result.errors.front().message;
  const std::string asks = "these do together: ";
  const size_t at = message.find(asks);
  ASSERT_NE(at, std::string::npos) << message;
  std::vector<std::string> keys;
  for (size_t begin = at + asks.size(); message.compare(begin, 6, "needs ") != 0;) {
    const size_t end = message.find(' ', begin);
    keys.push_back(message.substr(begin, end - begin));
    begin = end + 1;
  }
  EXPECT_GE(keys.size(), 2u) << message;
  EXPECT_TRUE(plan_of(8, 40, keys).errors.empty()) << message;
}

TEST(LayoutAdvice, GroupsOnSeveralNodesAndWhatTheySend) {
  const PlanResult result = plan_of(16, 141, {"roles.trainer.tp=4", "roles.rollout.tp=8"});
  ASSERT_TRUE(result.errors.empty()) << result.errors.front().message;
  const std::vector<RoleTraffic> traffic{{result.plan.role("rollout")->traits, {{Axis::tp, 3200 * kGiB}}},
                                         {result.plan.trainer().traits, {{Axis::tp, 1600 * kGiB}}}};
  EXPECT_TRUE(node_warnings(result.plan, traffic, 8).empty());
  const std::vector<std::string> four = node_warnings(result.plan, traffic, 4);
  ASSERT_EQ(four.size(), 1u);
  EXPECT_EQ(four.front().find("roles.rollout.tp = 8: 2 of 2 groups"), 0u) << four.front();
  for (const char* part : {"ranks 0-7", "3200.000 GiB a step", "200.000 GiB by each rank"})
    EXPECT_NE(four.front().find(part), std::string::npos) << part << ": " << four.front();
  // Nodes of six: a group of four lies on two of them where it begins at rank 4.
  const std::vector<std::string> six = node_warnings(result.plan, traffic, 6);
  ASSERT_EQ(six.size(), 2u);
  EXPECT_EQ(six.back().find("roles.trainer.tp = 4: 1 of 4 groups"), 0u) << six.back();
  // Ranks that share tokens are tp ranks apart.
  const PlanResult tokens = plan_of(16, 141, {"roles.trainer.tp=4", "roles.trainer.cp=2"});
  ASSERT_TRUE(tokens.errors.empty()) << tokens.errors.front().message;
  const std::vector<RoleTraffic> sent{
      {tokens.plan.trainer().traits, {{Axis::tp, kGiB}, {Axis::cp, 160 * kGiB}}}};
  EXPECT_TRUE(node_warnings(tokens.plan, sent, 8).empty());
  const std::vector<std::string> half = node_warnings(tokens.plan, sent, 4);
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half.front().find("roles.trainer.cp = 2: 2 of 2 groups"), 0u) << half.front();
  EXPECT_NE(half.front().find("cp sends 160.000 GiB a step, 10.000 GiB by each rank"), std::string::npos);
}

/// Each rank that generates has the layers of its stage, and keys of these; the stage with most of them says
/// how many pages fit.
TEST(LayoutMemory, OfTheStagesOfARollout) {
  ModelConfig model = large_model();
  model.num_layers = 5;
  constexpr int64_t kCache = 100000000;
  const auto part = [&](int stages, int rank, const std::string& name) {
    const Config config =
        load_text(kMinimalConfig,
                  {"model.context_tokens=64", "roles.rollout.ranks=0-3", "roles.trainer.ranks=4",
                   fmt::format("rollout.kv_memory={}", kCache), fmt::format("roles.rollout.pp={}", stages)})
            .config;
    const PlanResult result = try_plan(config, 5, model);
    EXPECT_TRUE(result.errors.empty());
    for (const MemoryRow& row : result.plan.memory)
      if (std::find(row.ranks.begin(), row.ranks.end(), rank) != row.ranks.end() && row.phase == "generate")
        for (const auto& [key, bytes] : row.all_parts())
          if (key == name) return bytes;
    return int64_t{0};
  };
  const int64_t page = 2 * 8 * 128 * 16 * 4;  // of a layer: keys and values, heads, width, tokens, bytes
  EXPECT_EQ(part(1, 0, "kv_cache"), kCache / (5 * page) * 5 * page);
  EXPECT_EQ(part(2, 0, "kv_cache"), kCache / (3 * page) * 3 * page);
  EXPECT_EQ(part(2, 3, "kv_cache"), kCache / (3 * page) * 2 * page);
  const int64_t whole = part(1, 0, "weights");
  EXPECT_EQ(part(2, 0, "weights") + part(2, 3, "weights"), whole) << "each parameter on one stage";
  EXPECT_EQ(part(4, 0, "weights") + part(4, 1, "weights") + part(4, 2, "weights") + part(4, 3, "weights"),
            whole);
  EXPECT_EQ(part(2, 0, "weights"), part(2, 1, "weights")) << "the ranks of a stage";
}

/// What roles send of a model whose parameters need no padding, with samples of 100 + 60 tokens, in fp32.
std::vector<RoleTraffic> sent_by_roles(const std::string& layout, int ranks, int64_t layers, bool bf16) {
  const ModelConfig model{.family = "llama",
                          .vocab_size = 512,
                          .hidden_size = 128,
                          .intermediate_size = 256,
                          .num_layers = layers,
                          .num_heads = 4,
                          .num_kv_heads = 4,
                          .head_dim = 64,
                          .max_position_embeddings = 256,
                          .rope = {},
                          .eos_token_ids = {}};
  const Config config =
      load_text(kMinimalConfig, {"rollout.max_prompt_tokens=100", "rollout.max_new_tokens=60",
                                 bf16 ? "run.dtype=bf16" : "run.dtype=fp32", layout})
          .config;
  const PlanResult result = try_plan(config, ranks, model);
  EXPECT_TRUE(result.errors.empty());
  return axis_traffic(result.plan, model, config);
}
/// What the trainer sends.
AxisBytes sent(const std::string& layout, int ranks, int64_t layers, bool bf16 = false) {
  return sent_by_roles(layout, ranks, layers, bf16).back().bytes;
}
constexpr int64_t kRows = 32 * 159;  // of a step: its samples, but for the last token of each

TEST(AxisTraffic, SumsOfGradientsAndNewWeights) {
  const int64_t layer = 4 * 128 * 256 + 3 * 128 * 256 + 2 * 128, ends = 2 * 512 * 128 + 128;
  for (const int dp : {2, 4}) {
    const AxisBytes bytes = sent("run.seed=1", dp, 3);
    EXPECT_EQ(bytes, (AxisBytes{{Axis::dp, (dp - 1) * (ends + 3 * layer) * (4 + 4)}})) << dp;
  }
}

TEST(AxisTraffic, ActivationsAndTheirGradientsBetweenStages) {
  for (const int stages : {2, 3}) {
    const AxisBytes bytes = sent(fmt::format("roles.trainer.pp={}", stages), stages, 3);
    EXPECT_EQ(bytes, (AxisBytes{{Axis::pp, 2 * (stages - 1) * kRows * 128 * 4}})) << stages;
  }
}

TEST(AxisTraffic, ActivationsBetweenStagesOfARollout) {
  for (const int64_t item : {4, 2})
    for (const int stages : {2, 3}) {
      const std::vector<RoleTraffic> roles =
          sent_by_roles(fmt::format("roles.rollout.pp={}", stages), stages, 3, item == 2);
      ASSERT_EQ(roles.size(), 2u);
      EXPECT_EQ(std::string(roles.front().role->name), "rollout");
      EXPECT_EQ(roles.front().bytes, (AxisBytes{{Axis::pp, (stages - 1) * kRows * 128 * item}})) << stages;
    }
}

/// Forward copies what both norms give, brings what attention and SwiGLU give to the owners of tokens, and
/// gathers the weights of o and down. Backward copies what the norms gave again, the gradients of what o and
/// down gave, and columns of their weights; it sums two gradients of inputs in fp32. Once an update gradients
/// of columns become rows, and those of the norms' weights are copied.
TEST(AxisTraffic, CopiesAndPartialSumsOfALayer) {
  constexpr int64_t kMicrobatches = 2, width = 128, heads = 256, inner = 256;
  for (const int64_t tp : {2, 4})
    for (const int64_t item : {4, 2}) {
      const std::string layout = fmt::format("roles.trainer.tp={}", tp);
      const AxisBytes layer =
          sent(layout, static_cast<int>(tp), 4, item == 2) - sent(layout, static_cast<int>(tp), 3, item == 2);
      const int64_t row = item * (6 * width + (heads + inner) / tp) + 4 * 2 * width,
                    weights = width * (heads + inner), norms = 2 * tp * width * 4;
      EXPECT_EQ(
          layer,
          (AxisBytes{{Axis::tp, (tp - 1) * (kRows * row + kMicrobatches * item * (weights + weights / tp) +
                                            4 * weights / tp + norms)}}))
          << tp << ", " << item;
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
