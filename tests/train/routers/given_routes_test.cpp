// Recorded routes in an update: those that the routers of now did not choose are counted; followed, they are
// what tokens go to, with the weights of the router of now.

#include "src/train/routers/given_routes.h"

#include <algorithm>

#include "src/nn/init.h"
#include "src/rl/registry.h"
#include "src/train/trainer.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

constexpr RouteShape kShape{2, 12, 3};

class GivenRoutesTest : public OnRanks {
 protected:
  GivenRoutesTest() {
    config_ = tiny_moe_config(0);
    config_.num_layers = 3;
    config_.moe.layers = {0, 2};
    for (int32_t i = 0; i < 5; ++i) {
      Trajectory& t = list_.emplace_back();
      t.prompt_tokens = temper::random_ids(2 + i % 3, kTinyVocab, 10 + static_cast<uint64_t>(i));
      t.response.tokens = temper::random_ids(1 + 3 * i, kTinyVocab, 30 + static_cast<uint64_t>(i));
      t.response.mask.assign(t.response.tokens.size(), 1);
      t.advantage = i % 2 == 0 ? 1.0 : -0.5;
    }
  }
  static Ctx& ctx() {
    static TestCtx c(2);
    return c;
  }
  std::unique_ptr<Model> make(uint64_t seed) const {
    auto model = std::make_unique<Model>(config_, ModelOptions{DType::f64, 64, /*with_gradients=*/true});
    random_init(model->parameters(), config_, seed);
    return model;
  }
  std::vector<const Trajectory*> pointers() const {
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : list_) all.push_back(&t);
    return all;
  }
  /// The model's own routes.
  void record(const Model& model) {
    for (Trajectory& t : list_) {
      const std::vector<const Trajectory*> one{&t};
      const Microbatch mb = pack(one, std::vector<int32_t>{0});
      const int64_t rows = mb.num_tokens();
      const ArenaScope scope(ctx().scratch);
      RouterNotes notes;
      notes.chosen = ctx().scratch.make({config_.num_layers, rows, kShape.chosen}, DType::i32);
      Batch batch = mb.batch(ctx());
      batch.routers = &notes;
      forward_pass(ctx(), model, batch);
      t.response.routes = make_routes(kShape);
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<int32_t> ids;
        for (const int64_t layer : config_.moe.layers)
          for (int64_t j = 0; j < kShape.chosen; ++j)
            ids.push_back(notes.chosen.as<int32_t>()[(layer * rows + r) * kShape.chosen + j]);
        append_route(t.response.routes, ids);
      }
    }
  }
  /// One other expert for a row of a response.
  void plant(size_t sequence, int64_t row, int64_t index) {
    Routes& routes = list_[sequence].response.routes;
    Routes changed = make_routes(kShape);
    std::vector<int32_t> ids(static_cast<size_t>(kShape.row_ids()));
    for (int64_t r = 0; r < route_rows(routes); ++r) {
      read_route(routes, r, ids);
      const auto own = ids.begin() + index / kShape.chosen * kShape.chosen;
      if (r == row) {
        int32_t other = 0;
        while (std::find(own, own + kShape.chosen, other) != own + kShape.chosen) ++other;
        ids[static_cast<size_t>(index)] = other;
        std::sort(own, own + kShape.chosen);
      }
      append_route(changed, ids);
    }
    routes = changed;
  }
  struct Update {
    double mismatch = -1;
    Values gradients, router;
    Metrics metrics;
  };
  Update update(Model& model, const RouteOptions& routes, int64_t budget = 1000,
                Recompute recompute = Recompute::none) {
    TrainerOptions o;
    o.pass.token_budget = budget;
    o.pass.routes = routes;
    o.total_updates = 10;
    o.recompute.granularity = recompute;
    const std::unique_ptr<Collectives> dp = collectives_of_all();
    Trainer trainer(ctx(), model, *comm_, *comm_, *dp, o);
    Update got;
    trainer.set_gradient_hook([&](Ctx& c, ParameterStore& store, int64_t) {
      got.gradients = decode(bytes_of(c, store.flat_grads()), DType::f64);
      for (const Parameter& p : store.list())
        if (p.spec.name == "layers.2.moe.router") got.router = decode(bytes_of(c, p.grad), DType::f64);
    });
    const std::unique_ptr<Algorithm> algorithm = make_algorithm(AlgorithmConfig{});
    const UpdateStats stats = trainer.update(ctx(), pointers(), {model, *algorithm, 1.0, 32});
    EXPECT_EQ(stats.defect, "");
    got.metrics = stats.metrics;
    if (stats.metrics.contains("moe/routing_mismatch"))
      got.mismatch = stats.metrics.at("moe/routing_mismatch");
    return got;
  }

  ModelConfig config_;
  std::vector<Trajectory> list_;
};

TEST_F(GivenRoutesTest, OwnRoutesChangeNothing) {
  const auto model = make(5);
  const Update without = update(*model, {});
  EXPECT_EQ(without.mismatch, -1);
  EXPECT_EQ(update(*model, {kShape}).mismatch, 0) << "no response has routes";
  record(*model);
  for (const bool follows : {false, true})
    for (const int64_t budget : {1000, 16})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const Update with = update(*model, {kShape, follows}, budget, recompute);
        EXPECT_EQ(with.mismatch, 0);
        if (budget == 1000) expect_same_bits("gradients", with.gradients, without.gradients);
        expect_near("gradients", with.gradients, without.gradients, 1e-12);
      }
}

TEST_F(GivenRoutesTest, OnePlantedIdIsCountedAsOne) {
  const auto model = make(5);
  record(*model);
  const Update without = update(*model, {kShape});
  plant(3, 4, 4);
  for (const int64_t budget : {1000, 16})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      EXPECT_EQ(update(*model, {kShape}, budget, recompute).mismatch, 1);
  expect_same_bits("gradients", update(*model, {kShape}).gradients, without.gradients);
  const Update follows = update(*model, {kShape, true});
  EXPECT_GE(follows.mismatch, 1) << "the layers above see another token";
  EXPECT_NE(follows.gradients, without.gradients);
  plant(1, 0, 0);
  EXPECT_EQ(update(*model, {kShape}).mismatch, 2);
}

/// Routes of other weights: tokens go where these sent them, and the router has a gradient all the same.
TEST_F(GivenRoutesTest, FollowedIdsAreTheRecordedOnes) {
  const auto older = make(5), newer = make(6);
  record(*older);
  const std::vector<Trajectory> recorded = list_;
  const Update free = update(*newer, {kShape}), follows = update(*newer, {kShape, true});
  EXPECT_GT(free.mismatch, 20);
  EXPECT_GT(follows.mismatch, 20);
  EXPECT_NE(follows.gradients, free.gradients);
  EXPECT_NE(follows.router, Values(follows.router.size(), 0.0));
  // Choices of a pass that follows, as those of another one would be recorded.
  for (size_t s = 0; s < list_.size(); ++s) {
    const std::vector<const Trajectory*> one{&list_[s]};
    Microbatch mb = pack(one, std::vector<int32_t>{0});
    const ArenaScope scope(ctx().scratch);
    RouterNotes notes;
    add_given_routes(ctx(), ctx().scratch, notes, {kShape, true}, *newer, mb,
                     routes_of(one, std::vector<int32_t>{0}));
    notes.chosen = ctx().scratch.make({config_.num_layers, mb.num_tokens(), kShape.chosen}, DType::i32);
    mb.routers = &notes;
    forward_pass(ctx(), *newer, mb.batch(ctx()));
    const int64_t ids = mb.num_tokens() * kShape.chosen;
    for (const int64_t layer : config_.moe.layers)
      for (int64_t i = 0; i < ids; ++i)
        EXPECT_EQ(notes.chosen.as<int32_t>()[layer * ids + i], notes.given.as<int32_t>()[layer * ids + i]);
  }
  // The log-probs of a pass are those that the update has.
  PassOptions pass;
  pass.token_budget = 16;
  const auto own = local_logprobs(ctx(), *newer, pointers(), pass);
  pass.routes = {kShape, true};
  EXPECT_NE(local_logprobs(ctx(), *newer, pointers(), pass), own);
}

/// Routers find all experts alike, and tokens go where they are sent.
TEST_F(GivenRoutesTest, LoadsAreThoseOfPlantedRoutes) {
  list_.resize(4);
  for (Trajectory& t : list_) {  // four rows each: the last token goes through no layer
    t.prompt_tokens = {3, 5};
    t.response.tokens = {1, 2, 4};
    t.response.mask = {1, 1, 1};
  }
  using Rows = std::vector<std::vector<int32_t>>;  // ids of both layers
  const auto expect_loads = [&](const Rows& rows, double most, double least, double idle) {
    for (Trajectory& t : list_) {
      t.response.routes = make_routes(kShape);
      for (const std::vector<int32_t>& ids : rows) append_route(t.response.routes, ids);
    }
    for (const int64_t budget : {1000, 4}) {
      const auto model = make(5);
      for (Parameter& p : model->parameters().list())
        if (p.spec.name.ends_with(".moe.router")) device::fill(ctx().lane, p.value.raw(), 0, p.value.bytes());
      Metrics got = update(*model, {kShape, true}, budget).metrics;
      EXPECT_EQ(got.at("moe/load_max"), most);
      EXPECT_EQ(got.at("moe/load_min"), least);
      EXPECT_EQ(got.at("moe/experts_idle"), idle);
      EXPECT_NEAR(got.at("moe/entropy"), std::log(12.0), 1e-12);
    }
  };
  const Rows even{{0, 1, 2, 9, 10, 11}, {3, 4, 5, 6, 7, 8}, {6, 7, 8, 3, 4, 5}, {9, 10, 11, 0, 1, 2}};
  expect_loads(even, 1, 1, 0);
  // 16 rows of 3 choices: 4 for each of 12 experts are even. In one layer three have 16 each; in the other
  // two have 16, four have 4.
  const Rows uneven{{0, 1, 2, 0, 1, 2}, {0, 1, 2, 0, 1, 3}, {0, 1, 2, 0, 1, 4}, {0, 1, 2, 0, 1, 5}};
  expect_loads(uneven, 4, 0, 9 + 6);
}

/// A mean over tokens and layers; the row of a dense layer is none of them.
TEST_F(GivenRoutesTest, MetricsOfRoutersAreOfLayersWithExperts) {
  config_.moe.num_experts = 4;
  config_.moe.experts_per_token = 2;
  RouterRecord record(config_, DType::f64, Device::cpu, {});
  record.clear(ctx().lane);
  const Values rows{4, 1, 2, 1, 2.5,  // 4 tokens
                    9, 9, 9, 9, 9,   6, 2, 3, 1, 1.1};
  std::copy(rows.begin(), rows.end(), record.sums().as<double>());
  Metrics got;
  record.add_metrics(ctx(), *comm_, got);
  EXPECT_EQ(got, (Metrics{{"moe/load_max", 6.0 / 3},
                          {"moe/load_min", 1.0 / 3},
                          {"moe/experts_idle", 0},
                          {"moe/entropy", (2.5 + 1.1) / 10}}));
  record.clear(ctx().lane);
  got.clear();
  record.add_metrics(ctx(), *comm_, got);
  EXPECT_EQ(got, Metrics{}) << "an update without tokens";
}

/// The gradient is that of the loss with the choices as they are.
TEST_F(GivenRoutesTest, GradientOfTheRouterIsACentralDifference) {
  const auto older = make(5), newer = make(6);
  record(*older);
  const auto loss = [&] {
    PassOptions pass;
    pass.token_budget = 1000;
    pass.routes = {kShape, true};
    const auto logprobs = local_logprobs(ctx(), *newer, pointers(), pass);
    double sum = 0, tokens = 0;
    for (size_t i = 0; i < logprobs.size(); ++i) tokens += static_cast<double>(logprobs[i].size());
    for (size_t i = 0; i < logprobs.size(); ++i)
      for (const double p : logprobs[i]) sum -= list_[i].advantage * p / tokens;
    return sum;
  };
  const Update got = update(*newer, {kShape, true});
  Values analytic, numeric;
  for (Parameter& p : newer->parameters().list()) {
    if (p.spec.name != "layers.2.moe.router") continue;
    for (int64_t i = 0; i < p.value.size(); i += 31) {
      double& x = p.value.as<double>()[i];
      const double was = x, step = 1e-6;
      x = was + step;
      const double above = loss();
      x = was - step;
      numeric.push_back((above - loss()) / (2 * step));
      x = was;
      analytic.push_back(got.router[static_cast<size_t>(i)]);
    }
  }
  ASSERT_GT(analytic.size(), 10u);
  expect_near("router", analytic, numeric, 1e-6, 1e-9);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
