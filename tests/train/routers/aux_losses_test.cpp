// Auxiliary losses of routers in an update: golden values and gradients (tools/golden/golden_moe.py), central
// differences, and that packing changes nothing.

#include "src/train/routers/aux_losses.h"

#include "src/nn/init.h"
#include "src/rl/registry.h"
#include "src/train/trainer.h"
#include "tests/support/check_op.h"
#include "tests/support/golden_case.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

constexpr int32_t kVocabulary = 13;

/// One dense layer between two with experts; some get no token.
ModelConfig small_config(int64_t experts, int64_t chosen, int64_t shared) {
  ModelConfig c;
  c.family = shared > 0 ? "qwen2_moe" : "qwen3_moe";
  c.vocab_size = kVocabulary;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_layers = 3;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 8;
  c.max_position_embeddings = 64;
  c.qk_norm = true;
  c.initializer_range = 0.4;
  c.moe = {.layers = {0, 2},
           .num_experts = experts,
           .experts_per_token = chosen,
           .expert_size = 6,
           .shared_size = shared,
           .normalizes = shared == 0};
  return c;
}

/// Sequences of so many rows each; without an advantage, so that the objective has no gradient.
std::vector<Trajectory> sequences(const std::vector<std::vector<int32_t>>& rows) {
  std::vector<Trajectory> list;
  for (const std::vector<int32_t>& tokens : rows) {
    Trajectory& t = list.emplace_back();
    t.prompt_tokens = {tokens.front()};
    t.response.tokens.assign(tokens.begin() + 1, tokens.end());
    t.response.tokens.push_back(0);  // the last token goes through no layer
    t.response.mask.assign(t.response.tokens.size(), 1);
  }
  return list;
}

class AuxLossTest : public OnRanks {
 protected:
  struct Update {
    double aux = 0, z = 0;
    std::map<std::string, Values> gradients;
    Values flat;
    int64_t microbatches = 0;
  };
  static Ctx& ctx() {
    static TestCtx c(2);
    return c;
  }
  Update update(Model& model, const std::vector<Trajectory>& list, const AuxLossOptions& aux,
                int64_t budget = 1000, Recompute recompute = Recompute::none) {
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : list) all.push_back(&t);
    TrainerOptions o;
    o.pass.token_budget = budget;
    o.optimizer.weight_decay = 0;
    o.total_updates = 10;
    o.recompute.granularity = recompute;
    o.aux = aux;
    const std::unique_ptr<Collectives> dp = collectives_of_all();
    Trainer trainer(ctx(), model, *comm_, *comm_, *dp, o);
    Update got;
    trainer.set_gradient_hook([&](Ctx& c, ParameterStore& store, int64_t) {
      for (const Parameter& p : store.list())
        if (p.has_grad()) got.gradients[p.spec.name] = decode(bytes_of(c, p.grad), p.grad.dtype);
      for (const auto& [name, values] : got.gradients)
        got.flat.insert(got.flat.end(), values.begin(), values.end());
    });
    const std::unique_ptr<Algorithm> algorithm = make_algorithm(AlgorithmConfig{});
    const UpdateStats stats = trainer.update(ctx(), all, {model, *algorithm, 1.0, 32});
    EXPECT_EQ(stats.defect, "");
    const auto metric = [&](const char* name) {
      const auto at = stats.metrics.find(name);
      return at == stats.metrics.end() ? 0.0 : at->second;
    };
    got.aux = metric("moe/aux_loss");
    got.z = metric("moe/z_loss");
    got.microbatches = stats.num_microbatches;
    return got;
  }
  std::unique_ptr<Model> small_model(int64_t experts = 5, int64_t chosen = 2, int64_t shared = 4,
                                     bool frozen = false) {
    ModelConfig config = small_config(experts, chosen, shared);
    if (frozen) config.frozen = {"layers.0.moe.router"};
    auto model = std::make_unique<Model>(config, ModelOptions{DType::f64, 64, /*with_gradients=*/true});
    random_init(model->parameters(), config, 3);
    return model;
  }
  static std::vector<Trajectory> some() {
    std::vector<std::vector<int32_t>> rows;
    for (int32_t i = 0; i < 7; ++i)
      rows.push_back(temper::random_ids(1 + (5 * i) % 11, kVocabulary, 10 + static_cast<uint64_t>(i)));
    return sequences(rows);
  }
};

constexpr AuxLossOptions kAll{.sequence = true, .global = true, .coef = 0.3, .z_coef = 0.05};

/// Golden coefficients are those of the script.
TEST_F(AuxLossTest, OfGoldenModels) {
  for (const char* name : {"qwen3-moe-silent-expert", "qwen2-moe-default"}) {
    SCOPED_TRACE(name);
    const std::string folder = std::string("tests/golden/moe/models/") + name;
    const GoldenFile golden(folder + "/aux.safetensors"), given(folder + "/golden.safetensors");
    const auto model = load_model(folder, DType::f32, 128);
    const std::vector<int32_t> tokens = given.integers("tokens"), ends = given.integers("cu_seqlens");
    std::vector<std::vector<int32_t>> rows;
    for (size_t s = 0; s + 1 < ends.size(); ++s)
      rows.emplace_back(tokens.begin() + ends[s], tokens.begin() + ends[s + 1]);
    const auto sum = [&](const char* loss) {
      double all = 0;
      for (const double of_layer : golden.numbers(loss)) all += of_layer;
      return all;
    };
    const Update got = update(*model, sequences(rows), kAll, 24);
    EXPECT_GT(got.microbatches, 1);
    EXPECT_NEAR(got.aux, 0.3 * (sum("sequence") + sum("global")), 2e-6);
    EXPECT_NEAR(got.z, 0.05 * sum("z"), 2e-6);
    EXPECT_NEAR(update(*model, sequences(rows), {.sequence = true, .coef = 1}).aux, sum("sequence"), 1e-5);
    EXPECT_NEAR(update(*model, sequences(rows), {.global = true, .coef = 1}).aux, sum("global"), 1e-5);
    size_t compared = 0;
    for (const Parameter& p : model->parameters().list()) {
      int64_t first = 0;
      for (const HfPart& part : p.spec.parts) {
        const int64_t size = part.rows * (p.value.size() / p.value.dim(0));
        const Values& all = got.gradients.at(p.spec.name);
        if (golden.has("grad/" + part.name)) {
          EXPECT_LE(relative_error(all, first, golden.numbers("grad/" + part.name)), 1e-4) << part.name;
          ++compared;
        } else {
          EXPECT_EQ(Values(all.begin() + first, all.begin() + first + size),
                    Values(static_cast<size_t>(size), 0.0))
              << part.name;
        }
        first += size;
      }
    }
    EXPECT_EQ(compared + 10, golden.size());
  }
}

/// Also where all tokens go to one expert, to all of them, or to no other.
TEST_F(AuxLossTest, GradientsAreCentralDifferences) {
  struct Case {
    int64_t experts, chosen, shared;
  };
  for (const Case& of : {Case{5, 2, 4}, Case{12, 1, 0}, Case{3, 3, 0}}) {
    SCOPED_TRACE(of.experts);
    const auto model = small_model(of.experts, of.chosen, of.shared);
    const std::vector<Trajectory> list = some();
    const Update got = update(*model, list, kAll, 12);
    const Tensor values = model->parameters().flat_values();
    double* const weights = values.as<double>();
    std::map<std::string, Values> numeric;
    for (const Parameter& p : model->parameters().list()) {
      const double* const own = static_cast<const double*>(p.value.data);
      Values& to = numeric[p.spec.name];
      // The router of a layer of experts whole, of the rest every seventh element.
      const int64_t stride = p.spec.name.ends_with("router") ? 1 : 17;
      Values analytic;
      for (int64_t i = 0; i < p.value.size(); i += stride) {
        double& x = weights[own - weights + i];
        const double was = x, step = 1e-6;
        x = was + step;
        const Update above = update(*model, list, kAll);
        x = was - step;
        const Update below = update(*model, list, kAll);
        x = was;
        to.push_back((above.aux + above.z - below.aux - below.z) / (2 * step));
        analytic.push_back(got.gradients.at(p.spec.name)[static_cast<size_t>(i)]);
      }
      expect_near(p.spec.name, analytic, to, 1e-6, 1e-8);
    }
  }
}

/// Micro-batches of any size, in any order of the sequences, computed again or not.
TEST_F(AuxLossTest, DoNotDependOnThePacking) {
  const auto model = small_model();
  const std::vector<Trajectory> list = some(), back(list.rbegin(), list.rend());
  const Update want = update(*model, list, kAll);
  EXPECT_EQ(want.microbatches, 1);
  EXPECT_GT(want.aux, 0.3 * 2 * 2);  // even use would be that, over two layers
  EXPECT_GT(want.z, 0);
  for (const int64_t budget : {12, 17, 1000})
    for (const auto* order : {&list, &back})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const Update got = update(*model, *order, kAll, budget, recompute);
        EXPECT_NEAR(got.aux, want.aux, 1e-12 * want.aux);
        EXPECT_NEAR(got.z, want.z, 1e-12 * want.z);
        expect_near("gradients", got.flat, want.flat, 1e-12);
      }
}

/// A router that is not trained has no losses: nothing of them reaches the layers before it.
TEST_F(AuxLossTest, LayersWithAFrozenRouterHaveNone) {
  const auto model = small_model(5, 2, 4, /*frozen=*/true), whole = small_model();
  const Update got = update(*model, some(), kAll), both = update(*whole, some(), kAll);
  EXPECT_FALSE(got.gradients.contains("layers.0.moe.router"));
  EXPECT_LT(got.aux, 0.7 * both.aux);
  EXPECT_LT(got.z, both.z);
  expect_near("router", got.gradients.at("layers.2.moe.router"), both.gradients.at("layers.2.moe.router"),
              1e-12);
}

TEST_F(AuxLossTest, WithoutThemNothingIsAdded) {
  const auto model = small_model();
  const Update got = update(*model, some(), {});
  EXPECT_EQ(got.aux, 0);
  EXPECT_EQ(got.z, 0);
  EXPECT_EQ(got.flat, Values(got.flat.size(), 0.0));
}

TEST(AuxLossOptions, AreWhatTheConfigNamesAndWeighs) {
  MoeSection c;
  EXPECT_EQ(AuxLossOptions::of(c).text(), "none");
  c.aux_loss = {"z", "global"};
  EXPECT_FALSE(AuxLossOptions::of(c).any());
  c.z_coef = 0.001;
  EXPECT_EQ(AuxLossOptions::of(c).text(), "z (0.001)");
  EXPECT_FALSE(AuxLossOptions::of(c).counts());
  c.aux_coef = 0.02;
  EXPECT_EQ(AuxLossOptions::of(c).text(), "global (0.02), z (0.001)");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
