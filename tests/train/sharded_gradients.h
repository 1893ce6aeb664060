#pragma once
// Ranks that keep only their shard of the gradients (ZeRO-2), and of the weights while they train (ZeRO-3):
// sums of any number of micro-batches against plain loops, updates against those of one rank, of ranks that
// keep all, and of each other.

#include "src/rl/registry.h"
#include "src/train/gradient_reducer.h"
#include "src/train/token_pass.h"
#include "src/train/trainer.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_model.h"

namespace temper {

class ShardedGradients : public OnRanks {
 protected:
  ShardedGradients()
      : dp_(collectives_of_all()),
        alone_(test_world->make_collectives(rank(), 0, Device::cpu, "alone", kTestWaitLimit)),
        alone_control_(test_world->make_comm(rank(), 0, kTestWaitLimit)) {}

  static int rank() { return test_world->rank(); }
  static int ranks() { return test_world->size(); }
  static Ctx& ctx() {
    static TestCtx c(2);
    return c;
  }
  static Values read(const CTensor& t) { return decode(bytes_of(ctx(), t), t.dtype); }

  std::unique_ptr<Collectives> dp_, alone_;
  std::unique_ptr<Comm> alone_control_;
};

/// An embedding that a head uses, too; layers with sizes that need padding; a last unit that is smaller than
/// the ranks' shares.
class ShardedSums : public ShardedGradients {
 protected:
  ShardedSums() {
    add("embed", "embedding", {37, 5}, /*also_in=*/4);
    for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
      add(std::string(layer) + ".w", layer, {9, 11});
      add(std::string(layer) + ".n", layer, {13});
    }
    add("norm", "head", {7});
    store_.allocate(DType::f32, /*with_gradients=*/true, Device::cpu, {rank(), ranks()});
  }
  void add(const std::string& name, const char* unit, std::vector<int64_t> shape, int64_t also_in = -1) {
    const int64_t rows = shape[0];
    store_.add({.name = name,
                .parts = {{name, rows}},
                .shape = std::move(shape),
                .unit = unit,
                .unit_number = store_.units().empty()               ? 0
                               : store_.units().back().name == unit ? store_.units().back().number
                                                                    : store_.units().back().number + 1,
                .also_in = also_in});
  }

  static int64_t microbatches(int rank) {
    return std::array<int64_t, 4>{2, 3, 0, 1}[static_cast<size_t>(rank)];
  }
  static constexpr int64_t kMost = 3;

  /// What the micro-batch of a rank gives a parameter, or nothing; `use`: 1 for the head's part of a tied
  /// one.
  static std::vector<float> made(int rank, int64_t microbatch, const Parameter& p, int use = 0) {
    const auto size = static_cast<size_t>(p.value.size());
    if (p.spec.name == "layers.1.n" && microbatch % 2 == 1) return std::vector<float>(size);
    const auto seed = static_cast<uint64_t>(((rank * kMost + microbatch) * 2 + use) * 1000 + p.offset);
    const Values values = normal_values(p.value.size(), seed);
    return {values.begin(), values.end()};
  }
  /// As layers do: the first gradient is written, later ones are added; one of zeros is not made at all.
  static void give(Parameter& p, const std::vector<float>& values) {
    if (std::all_of(values.begin(), values.end(), [](float v) { return v == 0; })) return;
    const bool first = p.take_write() == GradWrite::first;
    for (size_t i = 0; i < values.size(); ++i)
      p.grad.as<float>()[i] = values[i] + (first ? 0.0f : p.grad.as<float>()[i]);
  }
  void backward(GradientReducer& reducer, int64_t microbatch) {
    store_.clear_grads();
    give(store_.list().front(), made(rank(), microbatch, store_.list().front(), 1));
    for (auto unit = store_.units().rbegin(); unit != store_.units().rend(); ++unit) {
      for (Parameter& p : store_.list())
        if (p.spec.unit == unit->name) give(p, made(rank(), microbatch, p));
      reducer.after_backward(ctx(), *unit);
    }
  }
  void accumulate() {
    store_.clear_sums(ctx().lane);
    const ArenaScope scope(ctx().scratch);
    GradientReducer reducer(ctx(), store_, *dp_, nullptr);
    for (int64_t i = 0; i < microbatches(rank()); ++i) backward(reducer, i);
    reducer.finish(ctx(), static_cast<size_t>(microbatches(rank())), kMost);
  }
  /// The sums of all elements: micro-batch by micro-batch, of each the ranks in ascending order; zeros
  /// between parameters.
  Values plain_sums() const {
    std::vector<float> sums(static_cast<size_t>(store_.num_elements()));
    for (const Parameter& p : store_.list())
      for (int64_t m = 0; m < kMost; ++m)
        for (int64_t i = 0; i < p.value.size(); ++i) {
          const auto at = static_cast<size_t>(i);
          float sum = 0;
          for (int r = 0; r < ranks(); ++r) {
            if (m >= microbatches(r)) continue;
            float own = made(r, m, p)[at];
            if (p.spec.also_in >= 0) own += made(r, m, p, 1)[at];
            sum += own;
          }
          sums[static_cast<size_t>(p.offset + i)] += sum;
        }
    return {sums.begin(), sums.end()};
  }

  ParameterStore store_;
};

/// Twice: what the memory held before counts for nothing.
TEST_F(ShardedSums, AreThoseOfAPlainLoop) {
  const Values want = plain_sums();
  for (const char* round : {"first", "again"}) {
    accumulate();
    for (const Unit& unit : store_.units()) {
      const FlatRange own = shard_range(unit.range.size(), rank(), ranks());
      if (own.size() == 0) continue;
      const int64_t first = unit.range.begin + own.begin;
      expect_same_bits(fmt::format("{}, {}", unit.name, round), read(store_.grad_sums(first, own.size())),
                       slice_rows(want, 1, first, first + own.size()));
    }
  }
}

/// The shards, the tied embedding, what comes last, and of the layers one and the next of a backward.
TEST_F(ShardedSums, TakeTheMemoryOfShardsAndTwoLayers) {
  int64_t elements = 0;
  for (const Unit& unit : store_.units()) elements += shard_range(unit.range.size(), rank(), ranks()).size();
  const std::vector<Unit>& units = store_.units();
  for (const Unit& unit : units) elements += unit.name == "layers.2" ? 0 : unit.range.size();
  EXPECT_EQ(store_.grad_bytes(), elements * 4);
  EXPECT_EQ(store_.grads_of(units[1]).raw(), store_.grads_of(units[3]).raw());
  for (size_t i = 1; i < units.size(); ++i) {
    const CTensor before = store_.grads_of(units[i - 1]), one = store_.grads_of(units[i]);
    const auto *const end = static_cast<const char*>(before.data) + before.bytes(),
                      *const begin = static_cast<const char*>(one.data);
    EXPECT_TRUE(end <= begin || begin + one.bytes() <= before.data) << units[i].name;
  }
}

class ShardedTrainer : public ShardedGradients {
 protected:
  /// Layers with gated delta nets have wide weights.
  static ModelConfig hybrid_config() {
    ModelConfig c = config_of(false);
    c.family = "qwen3_5_text";
    c.is_hybrid = true;
    c.rotated_dim = 4;
    c.delta = {.layers = {0}, .key_heads = 2, .value_heads = 6, .key_dim = 8, .value_dim = 8, .taps = 4};
    return c;
  }
  static ModelConfig config_of(bool tied) {
    ModelConfig c = tiny_config(40);
    c.hidden_size = 16;
    c.intermediate_size = 24;
    c.num_heads = 2;
    c.num_kv_heads = 1;
    c.head_dim = 8;
    c.tie_word_embeddings = tied;
    return c;
  }
  std::unique_ptr<Model> make(bool tied, DType dtype, const UnitShards& shards = {}) const {
    return make(config_of(tied), dtype, shards);
  }
  std::unique_ptr<Model> make(const ModelConfig& config, DType dtype, const UnitShards& shards = {}) const {
    ModelOptions options{dtype, 64, /*with_gradients=*/true};
    options.unit_shards = shards;
    if (shards.of_values) options.splits.owners = dp_.get();
    auto model = std::make_unique<Model>(config, options);
    random_init(model->parameters(), config, 3);
    return model;
  }
  static constexpr int64_t kOneEach = 22;  // tokens of a micro-batch that holds one sequence
  static UnitShards shards() { return {rank(), ranks()}; }
  static UnitShards shards_of_weights() { return {rank(), ranks(), /*of_values=*/true}; }

  /// So many that they do not divide by the ranks, each longer than half of kOneEach.
  static std::vector<Trajectory> trajectories() {
    std::vector<Trajectory> list;
    for (int32_t i = 0; i < 13; ++i) {
      Trajectory& t = list.emplace_back();
      t.prompt_tokens = random_ids(2 + i % 3, 40, 10 + static_cast<uint64_t>(i));
      t.response.tokens = random_ids(12 + i % 5, 40, 30 + static_cast<uint64_t>(i));
      t.response.mask.assign(t.response.tokens.size(), 1);
      t.response.logprobs.assign(t.response.tokens.size(), -std::log(40.0));
      t.advantage = i % 2 == 0 ? 1.0 : -0.7;
    }
    return list;
  }
  static TrainerOptions options(int64_t token_budget) {
    TrainerOptions o;
    o.pass.token_budget = token_budget;
    o.optimizer.lr = 0.01;
    o.optimizer.grad_clip = 0.5;
    o.total_updates = 10;
    return o;
  }
  struct Trained {
    Values weights, norms;
    int64_t num_microbatches = 0;
  };
  Trained train(Model& model, Comm& comm, Collectives& dp, int64_t token_budget,
                Recompute recompute = Recompute::none) {
    TrainerOptions with = options(token_budget);
    with.recompute = {.granularity = recompute, .num_layers = 2};
    Trainer trainer(ctx(), model, comm, comm, dp, with);
    Trained result;
    for (int i = 0; i < 3; ++i) {
      const UpdateStats stats = update(trainer);
      EXPECT_EQ(stats.defect, "");
      result.norms.push_back(stats.grad_norm);
      result.num_microbatches = stats.num_microbatches;
    }
    trainer.trim(ctx());
    result.weights = read(model.parameters().flat_values());
    return result;
  }
  UpdateStats update(Trainer& trainer) {
    AlgorithmConfig config;
    config.name = "sft";
    const std::unique_ptr<Algorithm> algorithm = make_algorithm(config);
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : trajectories_) all.push_back(&t);
    return trainer.update(ctx(), all, {trainer.model(), *algorithm, 1.0, 32});
  }

  std::vector<Trajectory> trajectories_ = trajectories();
};

/// Some ranks have fewer micro-batches than others; the norm is above the clip.
TEST_F(ShardedTrainer, TrainsLikeOneRank) {
  for (const bool tied : {false, true}) {
    const auto one = make(tied, DType::f64), shared = make(tied, DType::f64, shards());
    const Trained want = train(*one, *alone_control_, *alone_, kOneEach);
    const Trained got = train(*shared, *comm_, *dp_, kOneEach);
    EXPECT_EQ(got.num_microbatches, 13);
    EXPECT_GT(want.norms[0], 0.5);
    expect_near("norms", got.norms, want.norms, 1e-12);
    expect_near("weights", got.weights, want.weights, 1e-12);
  }
}

/// A single micro-batch has one order of sums, whatever is kept of them.
TEST_F(ShardedTrainer, OneMicrobatchHasTheBitsOfWholeGradients) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const auto whole = make(true, dtype), shared = make(true, dtype, shards());
    const Trained want = train(*whole, *comm_, *dp_, 1000);
    const Trained got = train(*shared, *comm_, *dp_, 1000);
    EXPECT_EQ(got.num_microbatches, ranks());
    expect_same_bits("norms", got.norms, want.norms);
    expect_same_bits("weights", got.weights, want.weights);
  }
}

/// Ranks without a micro-batch take part in the gathers of the others; between updates weights stay split,
/// after the last one all are whole on every rank.
TEST_F(ShardedTrainer, SplitWeightsHaveTheBitsOfWholeOnes) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool tied : {false, true})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const auto whole = make(tied, dtype, shards()), split = make(tied, dtype, shards_of_weights());
        const Trained want = train(*whole, *comm_, *dp_, kOneEach, recompute);
        const Trained got = train(*split, *comm_, *dp_, kOneEach, recompute);
        expect_same_bits("norms", got.norms, want.norms);
        expect_same_bits("weights", got.weights, want.weights);
      }
}

/// In a bf16 model, whose wide weights are fp32, whatever is sharded.
TEST_F(ShardedTrainer, WideWeightsHaveTheBitsOfWholeOnes) {
  const ModelConfig config = hybrid_config();
  const auto whole = make(config, DType::bf16), shared = make(config, DType::bf16, shards()),
             split = make(config, DType::bf16, shards_of_weights());
  const Trained want = train(*whole, *comm_, *dp_, 1000), got = train(*shared, *comm_, *dp_, 1000),
                of_split = train(*split, *comm_, *dp_, 1000);
  expect_same_bits("norms", got.norms, want.norms);
  expect_same_bits("weights", got.weights, want.weights);
  expect_same_bits("norms of split ones", of_split.norms, want.norms);
  expect_same_bits("split weights", of_split.weights, want.weights);
  for (const Parameter& p : whole->parameters().list()) {
    const Values values = read(p.value);
    const bool rounded = std::all_of(values.begin(), values.end(), [](double v) {
      return v == static_cast<double>(static_cast<float>(bf16(static_cast<float>(v))));
    });
    EXPECT_EQ(rounded, !p.spec.wide) << p.spec.name;
  }
}

/// While they are trained: a shard of each unit, and one unit whole beside a tied embedding.
TEST_F(ShardedTrainer, SplitWeightsTakeAWindowAndTheirShards) {
  const auto model = make(true, DType::f32, shards_of_weights());
  ParameterStore& weights = model->parameters();
  const Values before = read(weights.flat_values());
  int64_t own = 0;
  for (const Unit& unit : weights.units()) own += shards().own(unit).size();
  EXPECT_EQ(weights.own_value_bytes(), own * 4);
  const int64_t layers = std::ssize(weights.units()) > 3 ? 2 : 1;  // one and the next
  EXPECT_EQ(weights.value_window_bytes(),
            (weights.units().front().range.size() + layers * weights.units()[1].range.size() +
             weights.units().back().range.size()) *
                4);
  weights.keep_own(ctx().lane);
  weights.split_values(ctx().lane);
  EXPECT_THROW(weights.flat_values(), std::exception);
  const Unit& layer = model->layer_units(1).front();
  model->gather(ctx(), model->layer_units(1));
  expect_same_bits("layer", read(weights.values_of(layer)),
                   slice_rows(before, 1, layer.range.begin, layer.range.end));
  const Unit& embedding = model->embedding_units().front();
  model->gather(ctx(), model->embedding_units());
  expect_same_bits("embedding", read(weights.values_of(embedding)),
                   slice_rows(before, 1, embedding.range.begin, embedding.range.end));
  weights.join_values(ctx().lane);
  for (const Unit& unit : weights.units()) {
    weights.place_own(ctx().lane, unit);
    dp_->all_gather_shards(ctx(), weights.values_of(unit), "test: weights");
  }
  expect_same_bits("weights", read(weights.flat_values()), before);
}

/// Nothing trains them. Some ranks have fewer micro-batches than others, of one sequence none.
TEST_F(ShardedTrainer, WeightsThatAreNeverWholeHaveTheLogprobsOfWholeOnes) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool tied : {false, true})
      for (const size_t sequences : {trajectories_.size(), size_t{1}}) {
        ModelOptions options{dtype, 64};
        options.splits.owners = dp_.get();
        options.unit_shards = {rank(), ranks(), /*of_values=*/true, /*never_whole=*/true};
        Model split(config_of(tied), options);
        random_init(split.parameters(), config_of(tied), 3);
        EXPECT_EQ(split.parameters().value_bytes(), 0);
        const auto whole = make(tied, dtype);
        std::vector<const Trajectory*> all;
        for (size_t i = 0; i < sequences; ++i) all.push_back(&trajectories_[i]);
        PassOptions pass;
        pass.token_budget = kOneEach;
        const int64_t before = dp_->bytes_sent();
        for (int again = 0; again < 2; ++again)
          EXPECT_EQ(packed_logprobs(ctx(), split, *comm_, all, pass),
                    local_logprobs(ctx(), *whole, all, pass));
        std::vector<double> sent{static_cast<double>(dp_->bytes_sent() - before)};
        comm_->all_reduce_sum(sent, "test: bytes");
        const int64_t passes = (std::ssize(all) + ranks() - 1) / ranks(),
                      twice = tied ? whole->embedding_units().front().range.size() : 0;
        EXPECT_EQ(sent[0], static_cast<double>(2 * passes * (ranks() - 1) * dtype_size(dtype) *
                                               (whole->parameters().num_elements() + twice)));
      }
}

/// What was summed before the stop is not in the next update.
TEST_F(ShardedTrainer, ADroppedUpdateLeavesNothing) {
  const auto stopped = make(true, DType::f32, shards_of_weights()), plain = make(true, DType::f32, shards());
  Trainer a(ctx(), *stopped, *comm_, *comm_, *dp_, options(kOneEach)),
      b(ctx(), *plain, *comm_, *comm_, *dp_, options(kOneEach));
  int asked = 0;
  a.set_stop_check([&] { return ++asked == 2; });
  EXPECT_TRUE(update(a).dropped);
  EXPECT_EQ(asked, 2) << "after the first micro-batch";
  a.set_stop_check({});
  EXPECT_EQ(update(a).grad_norm, update(b).grad_norm);
  a.trim(ctx());
  expect_same_bits("weights", read(stopped->parameters().flat_values()),
                   read(plain->parameters().flat_values()));
}

}  // namespace temper
