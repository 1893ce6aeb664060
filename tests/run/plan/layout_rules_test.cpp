// Layouts in the plan: what is proposed where one is illegal, and over random layouts and shapes that a plan
// is one, with an owner for every element, or is refused with every number that is legal.

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "src/config/values.h"
#include "src/models/parameter_specs.h"
#include "src/run/plan/plan.h"
#include "tests/config/config_text.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

ModelConfig shape_of(int64_t layers, int64_t heads, int64_t kv_heads) {
  ModelConfig c = tiny_config();
  c.num_layers = layers;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.hidden_size = 96, c.intermediate_size = 192;
  return c;
}

/// The legal values of the only error, which is of this key.
std::vector<Json> legal_of(const std::string& key, const std::vector<std::string>& keys) {
  const PlanResult result = try_plan(load_text(kMinimalConfig, keys).config, 8, shape_of(6, 8, 4));
  EXPECT_EQ(result.errors.size(), 1u);
  if (result.errors.empty()) return {};
  EXPECT_EQ(result.errors[0].key, key) << result.errors[0].message;
  return result.errors[0].legal;
}
using Legal = std::vector<Json>;

TEST(LayoutRules, LegalWithTheOtherKeysAsTheyAre) {
  const std::string tp = "roles.trainer.tp", cp = "roles.trainer.cp", pp = "roles.trainer.pp";
  EXPECT_EQ(legal_of(tp, {tp + "=3"}), (Legal{1, 2, 4, 8}));
  EXPECT_EQ(legal_of(tp, {tp + "=3", pp + "=4"}), (Legal{1, 2}));
  EXPECT_EQ(legal_of(tp, {tp + "=3", cp + "=2"}), (Legal{1, 2, 4}));
  EXPECT_EQ(legal_of(tp, {tp + "=3", cp + "=2", pp + "=4"}), (Legal{1}));
  EXPECT_EQ(legal_of(tp, {tp + "=3", "roles.rollout.ranks=0-3"}), (Legal{1, 2, 4}));
  EXPECT_EQ(legal_of(tp, {tp + "=3", "roles.rollout.ranks=0-3", "roles.rollout.tp=4"}), (Legal{1, 2, 4, 8}));
  EXPECT_EQ(legal_of(cp, {cp + "=3"}), (Legal{1, 2, 4, 8}));
  EXPECT_EQ(legal_of(cp, {cp + "=3", pp + "=2"}), (Legal{1, 2, 4}));
  EXPECT_EQ(legal_of(cp, {cp + "=8", tp + "=2", pp + "=2"}), (Legal{1, 2}));
  EXPECT_EQ(legal_of(pp, {pp + "=3"}), (Legal{1, 2, 4}));
  EXPECT_EQ(legal_of(pp, {pp + "=3", tp + "=2", cp + "=2"}), (Legal{1, 2}));
  EXPECT_EQ(legal_of(pp, {pp + "=3", "roles.trainer.stage_layers=[4,2]"}), (Legal{2}));
  EXPECT_EQ(legal_of(pp, {pp + "=3", "validation.every=1", "validation.data=v"}), (Legal{1, 2, 4}));
}

TEST(LayoutRules, StagesOfOtherRoles) {
  const std::string kl = "algorithm.kl_coef=0.1";
  for (const std::string role : {"roles.rollout.", "roles.reference."}) {
    EXPECT_EQ(legal_of(role + "pp", {kl, role + "pp=3"}), (Legal{1, 2, 4}));
    EXPECT_EQ(legal_of(role + "pp", {kl, role + "pp=8"}), (Legal{1, 2, 4})) << "six layers";
    EXPECT_EQ(legal_of(role + "pp", {kl, role + "pp=4", role + "tp=4"}), (Legal{1, 2}));
    EXPECT_EQ(legal_of(role + "tp", {kl, role + "tp=3", role + "pp=4"}), (Legal{1, 2}));
    EXPECT_EQ(legal_of(role + "tp", {kl, role + "tp=3", "roles.trainer.pp=4"}), (Legal{1, 2, 4, 8}))
        << "one stage where the trainer's do not divide the ranks";
  }
  EXPECT_EQ(legal_of("roles.reference.cp", {kl, "roles.reference.cp=3", "roles.reference.pp=4"}),
            (Legal{1, 2}));
}

/// Absent: as the trainer's, and then the same layers.
TEST(LayoutRules, StagesThatComeFromTheTrainer) {
  const auto stages_of = [](const char* name, const std::vector<std::string>& keys) {
    const PlanResult result = try_plan(load_text(kMinimalConfig, keys).config, 8, shape_of(6, 8, 4));
    EXPECT_TRUE(result.errors.empty());
    std::vector<int64_t> layers;
    for (const LayerRange& s : result.plan.role(name)->parts()) layers.push_back(s.end - s.begin);
    return layers;
  };
  using List = std::vector<int64_t>;
  const std::string pp2 = "roles.trainer.pp=2", uneven = "roles.trainer.stage_layers=[5,1]";
  EXPECT_EQ(stages_of("rollout", {pp2}), (List{3, 3}));
  EXPECT_EQ(stages_of("rollout", {pp2, uneven}), (List{5, 1}));
  EXPECT_EQ(stages_of("rollout", {pp2, uneven, "roles.rollout.pp=2"}), (List{5, 1}));
  EXPECT_EQ(stages_of("rollout", {pp2, uneven, "roles.rollout.pp=1"}), (List{6}));
  EXPECT_EQ(stages_of("rollout", {pp2, uneven, "roles.rollout.pp=4"}), (List{2, 2, 1, 1}));
  EXPECT_EQ(stages_of("rollout", {pp2, "roles.rollout.tp=8"}), (List{6}));
  const std::string kl = "algorithm.kl_coef=0.1", vpp2 = "roles.trainer.vpp=2",
                    parts = "roles.trainer.stage_layers=[3,1,1,1]";
  EXPECT_EQ(stages_of("reference", {pp2, uneven, kl}), (List{5, 1}));
  EXPECT_EQ(stages_of("reference", {pp2, vpp2, parts, kl}), (List{3, 1, 1, 1}));
  EXPECT_EQ(stages_of("reference", {pp2, vpp2, parts, kl, "roles.reference.vpp=1"}), (List{4, 2}));
  EXPECT_EQ(stages_of("reference", {pp2, vpp2, parts, kl, "roles.reference.pp=1"}), (List{6}));
  EXPECT_EQ(stages_of("reference", {pp2, uneven, kl, "roles.reference.vpp=3"}), (List{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(stages_of("rollout", {pp2, vpp2, parts}), (List{4, 2}));
}

/// A rank's team is spread over the stages; the first ones speak for the teams.
TEST(LayoutRules, TeamsThroughTheStages) {
  const PlanResult result = try_plan(
      load_text(kMinimalConfig, {"roles.rollout.tp=2", "roles.rollout.pp=2"}).config, 8, shape_of(6, 8, 4));
  ASSERT_TRUE(result.errors.empty());
  const RolePlan& rollout = *result.plan.role("rollout");
  EXPECT_EQ(rollout.leaders(), (std::vector<int>{0, 2}));
  EXPECT_EQ(rollout.team(5), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(rollout.team(2), (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(rollout.team_number(7), 1);
  EXPECT_EQ(rollout.stage_of(3), 0);
  EXPECT_EQ(rollout.stage_of(4), 1);
}

/// Several keys are illegal: what each proposes removes its own error.
TEST(LayoutRules, ProposalsWhereSeveralKeysAreIllegal) {
  const ModelConfig facts = shape_of(6, 8, 4);
  const auto errors = [&](const std::vector<std::string>& keys) {
    return try_plan(load_text(kMinimalConfig, keys).config, 8, facts).errors;
  };
  const std::vector<std::string> keys{"roles.trainer.tp=3", "roles.trainer.cp=5", "roles.trainer.pp=7"};
  const std::vector<PlanError> all = errors(keys);
  ASSERT_EQ(all.size(), 3u);
  for (const PlanError& error : all) {
    EXPECT_FALSE(error.legal.empty()) << error.message;
    for (const Json& legal : error.legal) {
      std::vector<std::string> with = keys;
      with.push_back(error.key + "=" + toml_text(legal));
      for (const PlanError& left : errors(with)) EXPECT_NE(left.key, error.key) << legal.dump();
    }
  }
}

/// A layout that is legal or not.
struct Drawn {
  Config config = load_text(kMinimalConfig).config;
  ModelConfig facts;
  int ranks = 1;

  PlanResult plan() const { return try_plan(config, ranks, facts); }
  PlanResult plan_with(const std::string& key, int64_t n) const {
    static const std::map<std::string, std::optional<int64_t> RoleSection::*> kMembers{
        {"tp", &RoleSection::tp},
        {"cp", &RoleSection::cp},
        {"pp", &RoleSection::pp},
        {"vpp", &RoleSection::vpp},
        {"zero", &RoleSection::zero}};
    Config with = config;
    const size_t begin = key.find('.') + 1, end = key.find('.', begin);
    const auto member = kMembers.find(key.substr(end + 1));
    if (key.starts_with("roles.") && member != kMembers.end())
      with.roles.of(key.substr(begin, end - begin)).*member->second = n;
    return try_plan(with, ranks, facts);
  }
  std::string text() const {
    std::string text = fmt::format("{} ranks, {} layers, {} heads, {} of keys", ranks, facts.num_layers,
                                   facts.num_heads, facts.num_kv_heads);
    for (const RoleTraits& role : config.roles.rows()) {
      const RoleSection& keys = config.roles.of(role.name);
      text +=
          fmt::format(", {} tp {} cp {} pp {} vpp {} zero {}", role.name, keys.tp.value_or(0),
                      keys.cp.value_or(0), keys.pp.value_or(0), keys.vpp.value_or(0), keys.zero.value_or(0));
    }
    return text;
  }
};

Drawn draw(int64_t index) {
  int64_t next = 0;
  const auto one_of = [&](const std::vector<int64_t>& list) {
    const double at = uniform_value(77, index * 100 + next++) * static_cast<double>(list.size());
    return list[static_cast<size_t>(at)];
  };
  const std::vector<int64_t> factors{1, 1, 1, 2, 2, 2, 3, 4, 6, 8};
  const int64_t kv = one_of({1, 2, 3, 4, 8}), heads = kv * one_of({1, 2, 3, 4});
  Drawn d{.facts = shape_of(one_of({1, 2, 3, 5, 8}), heads, kv)};
  d.facts.tie_word_embeddings = one_of({0, 1}) == 1;
  d.facts.qk_norm = one_of({0, 1}) == 1;
  d.facts.qkv_bias = d.facts.o_bias = d.facts.mlp_bias = one_of({0, 1}) == 1;
  d.facts.vocab_size = one_of({96, 2 * kVocabularyChunk + 5, 5 * kVocabularyChunk});
  RoleSection &trainer = d.config.roles.lead(), &rollout = d.config.roles.of("rollout"),
              &reference = d.config.roles.of("reference");
  trainer.tp = one_of(factors), trainer.cp = one_of(factors), trainer.pp = one_of(factors);
  trainer.zero = one_of({1, 2, 3}), trainer.vpp = one_of({1, 1, 1, 1, 1, 1, 2, 3});
  const int64_t model = *trainer.tp * *trainer.cp * *trainer.pp;
  d.ranks = static_cast<int>(model <= 32 && one_of({0, 1, 1}) == 1 ? model * one_of({1, 2, 3})
                                                                   : one_of({1, 2, 4, 6, 8, 12, 16}));
  if (one_of({0, 1}) == 1) rollout.tp = one_of(factors);
  if (one_of({0, 1}) == 1) d.config.algorithm.kl_coef = 0.1;
  if (one_of({0, 1}) == 1) reference.tp = one_of(factors);
  if (one_of({0, 1}) == 1) reference.cp = one_of(factors);
  if (one_of({0, 1, 1}) == 0) rollout.pp = one_of(factors);
  if (one_of({0, 1, 1}) == 0) reference.pp = one_of(factors);
  if (one_of({0, 1, 1, 1}) == 0) reference.vpp = one_of({1, 2, 3});
  if (one_of({0, 1, 1, 1}) == 0) reference.zero = one_of({1, 2, 3});
  return d;
}

/// Every row has as many first owners as the role has replicas; what a role works with comes from the
/// trainer's ranks, each row once.
void expect_owners(const RolePlan& role, const Holders& trainer, const ModelConfig& facts) {
  const Holders holders = role.holders();
  for (const ParamSpec& spec : parameter_specs(facts)) {
    std::vector<int> owners(static_cast<size_t>(spec.shape[0]));
    for (int number = 0; number < holders.grid.size(); ++number) {
      const ShardPlace place = holders.place(number);
      int64_t next = 0;  // row of what it has
      for (const RowMove& move : row_moves(spec, trainer, place, -1)) {
        EXPECT_EQ(move.to, next) << spec.name;
        next += move.rows;
      }
      for (const RowSpan& span : row_spans(spec, place)) {
        next -= span.rows;
        for (int64_t row = span.whole; row < span.whole + span.rows; ++row)
          owners[static_cast<size_t>(row)] += span.first_rank == place.rank && !span.copy;
      }
      EXPECT_EQ(next, 0) << spec.name;
    }
    EXPECT_EQ(std::count(owners.begin(), owners.end(), role.replicas()), spec.shape[0])
        << role.name() << ", " << spec.name;
  }
}

void expect_consistent(const RunPlan& plan, const ModelConfig& facts) {
  for (const RolePlan& role : plan.roles) {
    EXPECT_EQ(role.grid.size(), std::ssize(role.ranks));
    EXPECT_GE(role.dp(), 1);
    expect_owners(role, plan.trainer().holders(), facts);
  }
  for (const RolePlan& role : plan.roles) {
    int64_t layers = 0;
    for (const LayerRange& stage : role.parts()) {
      EXPECT_EQ(stage.begin, layers);
      EXPECT_GT(stage.end, stage.begin);
      layers = stage.end;
    }
    EXPECT_EQ(layers, facts.num_layers);
    std::vector<int> together;
    for (const int leader : role.leaders())
      for (const int rank : role.team(leader)) together.push_back(rank);
    std::sort(together.begin(), together.end());
    EXPECT_EQ(together, role.ranks) << "each rank is in one team";
  }
  std::map<std::string, std::vector<int>> ranks_of;
  for (const MemoryRow& row : plan.memory) {
    int64_t bytes = 0;
    for (const auto& [name, part] : row.all_parts()) bytes += part;
    EXPECT_EQ(bytes, row.device_bytes + row.host_bytes) << row.phase;
    auto& ranks = ranks_of[row.phase];
    ranks.insert(ranks.end(), row.ranks.begin(), row.ranks.end());
  }
  for (auto& [phase, ranks] : ranks_of) {
    std::sort(ranks.begin(), ranks.end());
    EXPECT_TRUE(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end()) << phase;
  }
}

/// Where one number alone makes it a plan: all of those are named, and no others. Else each removes its
/// error.
void expect_legal_numbers(const Drawn& d, const PlanError& error) {
  Legal whole;
  for (int64_t n = 1; n <= d.ranks; ++n)
    if (d.plan_with(error.key, n).errors.empty()) whole.push_back(n);
  if (!whole.empty()) {
    EXPECT_EQ(error.legal, whole) << error.key << ": " << error.message;
    return;
  }
  EXPECT_FALSE(error.legal.empty()) << error.message;
  for (const Json& legal : error.legal)
    for (const PlanError& left : d.plan_with(error.key, legal.get<int64_t>()).errors)
      EXPECT_NE(left.key, error.key) << legal.dump() << ": " << left.message;
}

TEST(LayoutRules, RandomLayoutsArePlansOrRefusedWithLegalNumbers) {
  int legal = 0, refused = 0;
  for (int64_t index = 0; (legal < 300 || refused < 300) && index < 3000 && !HasFailure(); ++index) {
    const Drawn d = draw(index);
    SCOPED_TRACE(d.text());
    const PlanResult result = d.plan();
    if (result.errors.empty() && legal++ < 300) expect_consistent(result.plan, d.facts);
    if (!result.errors.empty() && refused++ < 300)
      for (const PlanError& error : result.errors) expect_legal_numbers(d, error);
  }
  EXPECT_TRUE(legal >= 300 && refused >= 300) << legal << ", " << refused;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
