// An update against what it should be: gradients by central differences of the loss that it reports, the same
// for any cut into micro-batches, and nothing changed where the loss is not finite.

#include "src/train/trainer.h"

#include "src/nn/init.h"
#include "src/rl/registry.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

constexpr int32_t kVocabulary = 13;

ModelConfig small_config(bool tied) {
  ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = kVocabulary;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_layers = 2;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 8;
  c.max_position_embeddings = 64;
  c.qk_norm = true;
  c.tie_word_embeddings = tied;
  c.initializer_range = 0.4;
  return c;
}

/// Responses of several lengths, one of them empty, with masked tokens.
std::vector<Trajectory> some_trajectories() {
  std::vector<Trajectory> list;
  for (int32_t i = 0; i < 7; ++i) {
    Trajectory t;
    t.prompt_tokens = random_ids(2 + i % 3, kVocabulary, 10 + static_cast<uint64_t>(i));
    t.response.tokens = random_ids(i == 4 ? 0 : 3 + 2 * i, kVocabulary, 30 + static_cast<uint64_t>(i));
    for (size_t k = 0; k < t.response.tokens.size(); ++k) t.response.mask.push_back(k % 4 != 2);
    t.response.logprobs = normal_values(static_cast<int64_t>(t.response.tokens.size()),
                                        50 + static_cast<uint64_t>(i), 0.05, -std::log(kVocabulary));
    t.advantage = i % 2 == 0 ? 1.0 + 0.1 * i : -0.7;
    list.push_back(std::move(t));
  }
  return list;
}

class TrainerTest : public OnRanks {
 protected:
  struct Update {
    UpdateStats stats;
    Values gradients;  // as the hook saw them; empty where it saw none
    int64_t seen_update = 0, activation_bytes = 0;
  };

  TrainerTest() { make_model(false); }
  void make_model(bool tied) {
    model_ =
        std::make_unique<Model>(small_config(tied), ModelOptions{DType::f64, 64, /*with_gradients=*/true});
    random_init(model_->parameters(), small_config(tied), 3);
  }
  Values weights() const { return decode(bytes_of(ctx(), model_->parameters().flat_values()), DType::f64); }
  static Ctx& ctx() {
    static TestCtx c(2);
    return c;
  }
  double& weight(int64_t element) { return model_->parameters().flat_values().as<double>()[element]; }

  TrainerOptions options(int64_t token_budget, double lr) const {
    TrainerOptions o;
    o.pass.token_budget = token_budget;
    o.optimizer.lr = lr;
    o.optimizer.weight_decay = 0;
    o.total_updates = 10;
    o.recompute = recompute_;
    return o;
  }
  PolicyObjective objective(const Algorithm& algorithm) const { return {*model_, algorithm, 1.0, 32}; }
  Update update(const Algorithm& algorithm, int64_t token_budget = 1000, double lr = 0) {
    const std::vector<const Trajectory*> all = pointers();
    const std::unique_ptr<Collectives> dp = collectives_of_all();
    Trainer trainer(ctx(), *model_, *comm_, *comm_, *dp, options(token_budget, lr));
    Update result;
    trainer.set_gradient_hook([&](Ctx& c, ParameterStore& store, int64_t number) {
      result.gradients = decode(bytes_of(c, store.flat_grads()), DType::f64);
      result.seen_update = number;
    });
    result.stats = trainer.update(ctx(), all, objective(algorithm));
    result.activation_bytes = trainer.activation_bytes();
    EXPECT_EQ(trainer.optimizer().count(), result.stats.defect.empty() ? 1 : 0);
    return result;
  }
  std::vector<const Trajectory*> pointers() const {
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : trajectories_) all.push_back(&t);
    return all;
  }

  std::vector<Trajectory> trajectories_ = some_trajectories();
  std::unique_ptr<Model> model_;
  RecomputePlan recompute_;
};

/// Every term of the loss: ratio without clipping, KL, entropy.
std::unique_ptr<Algorithm> smooth_grpo() {
  AlgorithmConfig config;
  config.clip_low = 0.999;
  config.clip_high = 50;
  config.entropy_coef = 0.1;
  return make_algorithm(config);
}
std::unique_ptr<Algorithm> sft() {
  AlgorithmConfig config;
  config.name = "sft";
  return make_algorithm(config);
}

/// Elements at both ends and in the middle of every parameter: embedding, layers, norms, head.
TEST_F(TrainerTest, GradientIsTheDerivativeOfTheLoss) {
  for (const bool tied : {false, true}) {
    make_model(tied);
    for (const std::string key : {"train/loss", "actor/loss"}) {
      const std::unique_ptr<Algorithm> algorithm = key == "train/loss" ? sft() : smooth_grpo();
      const Values gradients = update(*algorithm).gradients;
      double largest = 0, compared = 0;
      for (const double g : gradients) largest = std::max(largest, std::abs(g));
      for (const Parameter& p : model_->parameters().list())
        for (const int64_t at : {int64_t{0}, p.value.size() / 2, p.value.size() - 1}) {
          const int64_t element = p.offset + at;
          const double old = weight(element), h = 1e-5;
          weight(element) = old + h;
          const double above = update(*algorithm).stats.metrics.at(key);
          weight(element) = old - h;
          const double below = update(*algorithm).stats.metrics.at(key);
          weight(element) = old;
          EXPECT_NEAR(gradients[static_cast<size_t>(element)], (above - below) / (2 * h),
                      1e-7 * (1 + largest))
              << key << ", " << p.spec.name << " " << at;
          compared += std::abs(gradients[static_cast<size_t>(element)]) > 1e-4;
        }
      EXPECT_GT(compared, 30) << key;
    }
  }
}

/// What is computed again instead of kept changes no bit of a gradient, and less is kept.
TEST_F(TrainerTest, RecomputationChangesNoBit) {
  const std::unique_ptr<Algorithm> algorithm = smooth_grpo();
  const Update kept = update(*algorithm, 40);
  const std::pair<const char*, RecomputePlan> plans[] = {
      {"selective", {.granularity = Recompute::selective}},
      {"every layer", {.granularity = Recompute::full}},
      {"the first layer", {.granularity = Recompute::full, .block = true}},
      {"both at once", {.granularity = Recompute::full, .num_layers = 2}},
      {"more than there are", {.granularity = Recompute::full, .num_layers = 7}},
      {"more of the first than there are", {.granularity = Recompute::full, .block = true, .num_layers = 7}}};
  for (const auto& [name, plan] : plans) {
    recompute_ = plan;
    const Update again = update(*algorithm, 40);
    expect_same_bits(name, again.gradients, kept.gradients);
    EXPECT_EQ(again.stats.grad_norm, kept.stats.grad_norm) << name;
    if (plan.block || plan.num_layers == 1) {
      EXPECT_LT(again.activation_bytes, kept.activation_bytes) << name;
    }
  }
}

TEST_F(TrainerTest, CutIntoMicrobatchesDoesNotMatter) {
  const std::unique_ptr<Algorithm> algorithm = smooth_grpo();
  const Update whole = update(*algorithm);
  EXPECT_EQ(whole.stats.num_microbatches, 1);
  for (const int64_t budget : {40, 20}) {
    const Update cut = update(*algorithm, budget);
    EXPECT_GT(cut.stats.num_microbatches, 1);
    expect_near(fmt::format("micro-batches of {} tokens", budget), cut.gradients, whole.gradients, 1e-12);
    EXPECT_NEAR(cut.stats.metrics.at("actor/loss"), whole.stats.metrics.at("actor/loss"), 1e-13);
    EXPECT_NEAR(cut.stats.grad_norm, whole.stats.grad_norm, 1e-12 * whole.stats.grad_norm);
  }
}

/// The hook sees the gradient of this update alone, before clipping, and the norm is that of what it sees.
TEST_F(TrainerTest, HookSeesTheGradientsOfTheUpdate) {
  const std::unique_ptr<Algorithm> algorithm = sft();
  const std::unique_ptr<Collectives> dp = collectives_of_all();
  Trainer trainer(ctx(), *model_, *comm_, *comm_, *dp, options(30, 0.0));
  std::vector<Values> seen;
  std::vector<int64_t> numbers;
  trainer.set_gradient_hook([&](Ctx& c, ParameterStore& store, int64_t number) {
    seen.push_back(decode(bytes_of(c, store.flat_grads()), DType::f64));
    numbers.push_back(number);
  });
  const std::vector<const Trajectory*> all = pointers();
  const UpdateStats first = trainer.update(ctx(), all, objective(*algorithm));
  trainer.update(ctx(), all, objective(*algorithm));
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, 2}));
  expect_same_bits("the same weights, the same gradient", seen.at(1), seen.at(0));
  double squares = 0;
  for (const double g : seen[0]) squares += g * g;
  EXPECT_NEAR(first.grad_norm, std::sqrt(squares), 1e-12 * first.grad_norm);
  EXPECT_GT(first.grad_norm, 1e-3);
}

/// A small step against the gradient lowers the loss by about lr * |g|_1, as AdamW's first step does.
TEST_F(TrainerTest, AnUpdateGoesDownhill) {
  const std::unique_ptr<Algorithm> algorithm = sft();
  const Update before = update(*algorithm, 1000, 1e-5);
  double expected = 0;
  for (const double g : before.gradients) expected += 1e-5 * std::abs(g);
  const double drop =
      before.stats.metrics.at("train/loss") - update(*algorithm).stats.metrics.at("train/loss");
  EXPECT_NEAR(drop, expected, 0.02 * expected);
}

TEST_F(TrainerTest, NonFiniteLossLeavesTheWeights) {
  trajectories_[2].advantage = std::nan("");
  const std::unique_ptr<Algorithm> algorithm = smooth_grpo();
  const Values before = weights();
  const Update broken = update(*algorithm, 30, 0.1);
  EXPECT_NE(broken.stats.defect.find("actor/"), std::string::npos) << broken.stats.defect;
  expect_same_bits("weights", weights(), before);
  trajectories_[2].advantage = 1.0;
  EXPECT_EQ(update(*algorithm, 30, 0.1).stats.defect, "");
  EXPECT_NE(weights(), before);
}

/// They have no row in the head, and nothing else changes by it: the others' log-probs and all gradients are
/// the bits of an update in which they count and have no advantage.
TEST_F(TrainerTest, TokensThatAreNotCountedCostNoHead) {
  AlgorithmConfig config;
  config.aggregation = "token-sum";
  const std::unique_ptr<Algorithm> algorithm = make_algorithm(config);
  const PassOptions pass = options(1000, 0).pass;
  const auto logprobs = local_logprobs(ctx(), *model_, pointers(), pass);
  const Update masked = update(*algorithm);
  const std::vector<const Trajectory*> all = pointers();
  const ObjectiveUpdate begun = objective(*algorithm).begin(all);
  const std::vector<int32_t> order = {0, 1, 2, 3, 4, 5, 6};
  const Microbatch mb = objective(*algorithm).pack(begun, order, /*losses=*/true);
  int64_t counted = 0, tokens = 0;
  for (const Trajectory& t : trajectories_)
    counted += t.counted_tokens(), tokens += std::ssize(t.response.tokens);
  EXPECT_LT(counted, tokens);
  EXPECT_EQ(std::ssize(mb.rows), counted);
  EXPECT_EQ(target_hidden(ctx(), *model_, mb, nullptr).dim(0), counted);
  const std::vector<Trajectory> before = trajectories_;
  for (Trajectory& t : trajectories_)
    for (size_t i = 0; i < t.response.mask.size(); ++i) {
      t.advantages.push_back(t.response.mask[i] ? t.advantage : 0);
      t.response.mask[i] = 1;
    }
  const auto of_all = local_logprobs(ctx(), *model_, pointers(), pass);
  for (size_t i = 0; i < before.size(); ++i)
    for (size_t k = 0; k < before[i].response.mask.size(); ++k)
      EXPECT_EQ(logprobs[i][k], before[i].response.mask[k] ? of_all[i][k] : 0.0) << i << " " << k;
  expect_same_bits("gradients", masked.gradients, update(*algorithm).gradients);
}

/// An update in which no token counts: gradients are zeros, not what the memory held.
TEST_F(TrainerTest, NoCountedTokensGiveZeros) {
  const std::unique_ptr<Algorithm> algorithm = sft();
  update(*algorithm);
  for (Trajectory& t : trajectories_)
    t.response.tokens.clear(), t.response.mask.clear(), t.response.logprobs.clear();
  const Values gradients = update(*algorithm).gradients;
  EXPECT_FALSE(gradients.empty());
  expect_same_bits("gradients", gradients, Values(gradients.size(), 0.0));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
