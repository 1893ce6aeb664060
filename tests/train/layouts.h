#pragma once
// Trainers over every kind of sub-mesh of one world, against a trainer of one rank: log-probs have its bits;
// gradients, norms and weights after two clipped updates are its own within rounding; the same layout has the
// same bits again. Each rank compares what it has. The same on a GPU that the ranks share, where fp32 takes
// the place of fp64 and tolerances are wider (tests/gpu/layouts_mpi4_test.cpp).

#include <map>
#include <span>

#include "src/comm/mesh.h"
#include "src/models/freeze.h"
#include "src/models/parameter_specs.h"
#include "src/models/stages.h"
#include "src/nn/init.h"
#include "src/ops/head.h"
#include "src/rl/registry.h"
#include "src/train/trainer.h"
#include "tests/support/check_op.h"
#include "tests/support/grid_shape.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_model.h"

namespace temper {

/// The device that the test program says.
Device device_of_layouts();

struct TrainedShape {
  const char* name;
  int64_t heads, kv_heads, layers, vocabulary;
  bool tied, qk_norm, biases;
  int64_t experts = 0, per_token = 0, shared = 0;  // 0 experts: a dense model
  int64_t dense_layer = -1;                        // of one with experts; -1: none is
  int64_t interval = 0;  // of layers with attention among gated delta nets; 0: all have it
  int64_t delta_keys = 2, delta_values = 4;  // heads of these

  std::string text() const {
    return fmt::format("{} ({} heads, {} of keys, {} layers, vocabulary {}{}{}{}{})", name, heads, kv_heads,
                       layers, vocabulary, tied ? ", tied" : "", qk_norm ? ", norms of heads" : "",
                       biases ? ", biases" : "",
                       experts > 0 ? fmt::format(", {} of {} experts", per_token, experts) : "");
  }
  ModelConfig config() const {
    ModelConfig c = tiny_config(vocabulary);
    c.family = qk_norm ? "qwen3" : biases ? "qwen2" : "llama";
    c.num_heads = heads;
    c.num_kv_heads = kv_heads;
    c.num_layers = layers;
    c.head_dim = 8;
    if (device_of_layouts() == Device::cuda) {  // what its fast kernels take
      c.head_dim = 64;
      c.hidden_size = 256;
      c.intermediate_size = 384;
      c.initializer_range = 0.05;
    }
    c.tie_word_embeddings = tied;
    c.qk_norm = qk_norm;
    c.qkv_bias = c.o_bias = c.mlp_bias = biases;
    if (interval > 0) {
      c.family = experts > 0 ? "qwen3_5_moe_text" : "qwen3_5_text";
      c.is_hybrid = true;
      c.rotated_dim = 4;
      c.delta = {
          .key_heads = delta_keys, .value_heads = delta_values, .key_dim = 8, .value_dim = 8, .taps = 4};
      for (int64_t layer = 0; layer < layers; ++layer)
        if ((layer + 1) % interval != 0) c.delta.layers.insert(layer);
    }
    if (experts == 0) return c;
    c.moe = {.num_experts = experts,
             .experts_per_token = per_token,
             .expert_size = c.intermediate_size / 2,
             .shared_size = shared,
             .normalizes = shared == 0};
    for (int64_t layer = 0; layer < layers; ++layer)
      if (layer != dense_layer) c.moe.layers.insert(layer);
    return c;
  }
};
/// A vocabulary of several chunks, the last one short; or of less than one.
inline constexpr int64_t kChunks = 2 * kVocabularyChunk + 100, kPart = 90;
inline constexpr TrainedShape kQwen3{"qwen3", 8, 4, 3, kChunks, false, true, false},
    kQwen3Tied{"qwen3", 8, 1, 5, kChunks, true, true, false},
    kTiedPart{"qwen3", 8, 2, 3, kPart, true, true, false}, kQwen2{"qwen2", 8, 2, 5, kPart, true, false, true},
    kLlama{"llama", 8, 8, 3, kPart, false, false, false},
    kLlamaBiases{"llama", 8, 2, 9, kPart, false, false, true},
    kQwen3Moe{"qwen3_moe", 8, 4, 3, kPart, false, true, false, 6, 2},
    kQwen2Moe{"qwen2_moe", 8, 4, 5, kPart, true, false, true, 5, 2, 48, 1},
    kOneExpertOfMany{"qwen3_moe", 8, 4, 3, kPart, false, true, false, 24, 1},
    kHybrid{"hybrid", 8, 4, 4, kPart, true, true, false, 0, 0, 0, -1, 2},
    kHybridOfThree{"hybrid", 8, 2, 6, kPart, false, true, false, 0, 0, 0, -1, 3},
    // More value heads, for ranks of tp and cp together.
    kHybridWide{"hybrid", 16, 4, 4, kPart, false, true, false, 0, 0, 0, -1, 4, 2, 8},
    // Both: gated delta nets, and experts of which one is shared.
    kHybridMoe{"hybrid_moe", 8, 4, 4, kPart, false, true, false, 8, 2, 24, -1, 2},
    kHybridMoeOfThree{"hybrid_moe", 8, 2, 6, kPart, true, true, false, 6, 3, 24, 4, 3};

struct TrainedLayout {
  GridShape mesh = {};
  const TrainedShape* shape = &kQwen3;
  int zero = 1, vpp = 1;
  int32_t sequences = 11;  // few: fewer micro-batches than stages, data parallel ranks without any
  int64_t budget = 20;     // tokens of a micro-batch
  Recompute recompute = Recompute::none;
  const char* aggregation = "token-mean";
  const char* frozen = "";  // train.freeze
  bool aux = false;         // auxiliary losses of routers
  int64_t adapters = 0;     // their rank; 0: none, and all is trained
  int stretch = 1;          // responses, and the context, are so many times as long

  ModelConfig config() const {
    ModelConfig c = shape->config();
    if (*frozen) c.frozen = frozen_parameters(c, {frozen}).parameters;
    if (adapters > 0) c.adapters = {.rank = adapters, .alpha = 3, .targets = adapter_modules(c)};
    return c;
  }
  int ranks() const { return mesh.ranks(); }
  std::string text() const {
    return fmt::format(
        "tp {} cp {} dp {} pp {} ep {} vpp {} zero {}, {}, {} sequences, {} tokens, recompute {}, {}, frozen "
        "\"{}\"{}, adapters {}, stretch {}",
        mesh.tp, mesh.cp, mesh.dp, mesh.pp, mesh.ep, vpp, zero, shape->text(), sequences, budget,
        static_cast<int>(recompute), aggregation, frozen, aux ? ", auxiliary losses" : "", adapters, stretch);
  }
};

/// With sequences that go over several chunks of the gated delta rule.
inline std::vector<TrainedLayout> over_several_chunks(std::span<const TrainedLayout> layouts) {
  std::vector<TrainedLayout> all(layouts.begin(), layouts.end());
  for (TrainedLayout& layout : all) layout.stretch = 9, layout.budget = 160;
  return all;
}

class TrainedLayouts : public OnRanks {
 protected:
  /// Parameters go by their names where there are such.
  struct Trained {
    Values logprobs;
    std::vector<std::map<std::string, Values>> gradients;  // of each update, before clipping
    Values norms;
    std::map<std::string, Values> weights;
    std::vector<int64_t> microbatches;
  };
  /// The ranks that share one model and its sums; alone: this rank.
  struct Group {
    std::unique_ptr<Mesh> mesh;
    std::unique_ptr<Comm> all;
  };
  static constexpr int kUpdates = 2;
  static constexpr double kClip = 0.05;
  /// What is compared in a storage type: log-probs by their bits; gradients of the first update within
  /// `gradients`, norms and what comes after within `later` of the largest. (Adam's first step has the signs
  /// of gradients: beside rounding the smallest of them move a weight either way.)
  struct TypeChecks {
    DType dtype;
    bool logprobs;
    double gradients = 0, later = 0;
  };
  static std::span<const TypeChecks> checks() {
    static constexpr TypeChecks kCpu[] = {
        {DType::f32, true}, {DType::bf16, true}, {DType::f64, false, 1e-12, 1e-12}};
    static constexpr TypeChecks kGpu[] = {{DType::f32, true, 1e-4, 0.05}, {DType::bf16, true, 0.05, 0.2}};
    if (device_of_layouts() == Device::cuda) return kGpu;
    return kCpu;
  }

  /// With about half of the parameters frozen: after these updates they have their bits, and gradients and
  /// state are of the others alone.
  void expect_frozen(const TrainedLayout& l, int updates) {
    SCOPED_TRACE(l.text());
    const Group group = make_group(l);
    const auto model = make(l, group.mesh.get(), DType::f32);
    const ParameterStore& weights = model->parameters();
    std::map<std::string, Values> before;
    for (const Parameter& p : weights.list()) before[p.spec.name] = read(p.value);
    updates_ = updates;
    const Trained after =
        train(l, *model, *group.all, group.mesh->control(Axis::dp), sums_of(group), pipeline_of(l, group));
    int64_t all = 0, trained = 0;
    for (const Parameter& p : weights.list()) {
      all += p.value.size();
      if (p.spec.trained) trained += p.value.size();
      if (p.value.size() == 0) continue;
      EXPECT_EQ(after.weights.at(p.spec.name) == before[p.spec.name], !p.spec.trained) << p.spec.name;
    }
    EXPECT_NEAR(static_cast<double>(trained), 0.5 * static_cast<double>(all), 0.1 * static_cast<double>(all));
    TrainedLayout whole = l;
    whole.frozen = "";
    const auto both = make(whole, group.mesh.get(), DType::f32);
    Trainer of_all(ctx(), *both, *group.all, group.mesh->control(Axis::dp), group.mesh->tensors(kReplicas),
                   trainer_options(l), pipeline_of(l, group));
    const double share = static_cast<double>(trained) / static_cast<double>(all);
    EXPECT_NEAR(state_bytes_, share * static_cast<double>(of_all.optimizer().state_bytes()),
                0.02 * static_cast<double>(of_all.optimizer().state_bytes()));
    EXPECT_LT(static_cast<double>(weights.grad_bytes()),
              (share + 0.1) * static_cast<double>(both->parameters().grad_bytes()));
  }

  void expect_like_one_rank(std::span<const TrainedLayout> layouts) {
    for (const TrainedLayout& l : layouts) {
      SCOPED_TRACE(l.text());
      const Group group = make_group(l);
      for (const TypeChecks& of : checks()) {
        const Trained& want = of_one_rank(l, of);
        if (group.all && of.logprobs) expect_logprobs(l, group, of.dtype, want);
        if (group.all && of.gradients > 0) expect_updates(l, group, of, want);
      }
      ASSERT_EQ(comm_->all_reduce_max(HasFailure() ? 1 : 0, "test: failures"), 0) << l.text();
    }
  }

 private:
  Group make_group(const TrainedLayout& l) {
    std::vector<int> ranks(static_cast<size_t>(l.ranks()));
    std::iota(ranks.begin(), ranks.end(), 0);
    Group group{std::make_unique<Mesh>(*test_world, ranks, l.mesh, device_of_layouts(), kTestWaitLimit),
                test_world->make_comm(ranks, kTestWaitLimit)};
    return group;
  }

  std::unique_ptr<Model> make(const TrainedLayout& l, Mesh* mesh, DType dtype) {
    const ModelConfig config = l.config();
    ModelOptions options{dtype, 64 * l.stretch, /*with_gradients=*/true, device_of_layouts()};
    if (mesh) {
      if (l.mesh.tp > 1) options.splits.tp = &mesh->tensors(Axis::tp);
      const int ep = mesh->grid().along(Axis::ep);
      if (ep > 1) options.splits.ep = &mesh->tensors(Axis::ep);
      options.splits.ep_spans_batches = ep > l.mesh.tp * l.mesh.cp;
      if (l.mesh.cp > 1) options.splits.cp = &mesh->tensors(Axis::cp);
      if (l.mesh.pp > 1)
        options.layers = parts_of_stages(balanced_stages(config, l.mesh.pp * l.vpp),
                                         l.mesh.pp)[static_cast<size_t>(mesh->control(Axis::pp).rank())];
      if (l.zero > 1)
        options.unit_shards = {
            .rank = mesh->tensors(kReplicas).rank(),
            .ranks = mesh->tensors(kReplicas).size(),
            .of_values = l.zero > 2,
            .others = {{Axis::edp, {mesh->tensors(Axis::edp).rank(), mesh->tensors(Axis::edp).size()}}}};
      if (l.zero > 2) options.splits.owners = &mesh->tensors(kReplicas);
      if (l.zero > 2) options.splits.expert_owners = &mesh->tensors(Axis::edp);
    }
    auto model = std::make_unique<Model>(config, options);
    random_init(model->parameters(), config, 5);
    // Norms and biases start at ones and zeros, which are alike everywhere.
    for (Parameter& p : model->parameters().list())
      if (p.spec.init != Init::normal) disturb(p);
    return model;
  }
  void disturb(Parameter& p) {
    const int64_t width = p.spec.size() / p.spec.shape[0];
    const auto seed = static_cast<uint64_t>(std::hash<std::string>{}(p.spec.name));
    const double mean = p.spec.init == Init::ones ? 1 : 0;
    const Values whole = normal_values(p.spec.size(), seed, 0.2, mean);
    Values own;
    for (const RowSpan& span : p.spans)
      own.insert(own.end(), whole.begin() + span.whole * width,
                 whole.begin() + (span.whole + span.rows) * width);
    device::copy_to_device(ctx().lane, p.value.raw(), encode(own, p.value.dtype).data(), p.value.bytes());
  }

  /// Ragged, some without a response or with masked tokens, one of a single row; a single one has two rows,
  /// fewer than there may be tensor parallel ranks.
  static std::vector<Trajectory> trajectories(const TrainedLayout& l) {
    std::vector<Trajectory> list;
    const auto vocabulary = static_cast<int32_t>(l.shape->vocabulary);
    for (int32_t i = 0; i < l.sequences; ++i) {
      Trajectory& t = list.emplace_back();
      const auto seed = static_cast<uint64_t>(i);
      t.prompt_tokens = random_ids(1 + i % 4, vocabulary, 10 + seed);
      t.response.tokens = random_ids(i == 4             ? 0
                                     : l.sequences == 1 ? 2
                                                        : l.stretch * (1 + (5 * i + 7) % 16),
                                     vocabulary, 30 + seed);
      for (size_t k = 0; k < t.response.tokens.size(); ++k) t.response.mask.push_back(k % 4 != 2);
      t.response.logprobs = normal_values(std::ssize(t.response.tokens), 50 + seed, 0.05, -4);
      t.advantage = i % 2 == 0 ? 1.0 + 0.1 * i : -0.7;
    }
    return list;
  }
  static std::vector<const Trajectory*> pointers(const std::vector<Trajectory>& list) {
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : list) all.push_back(&t);
    return all;
  }
  static TrainerOptions trainer_options(const TrainedLayout& l) {
    TrainerOptions o;
    o.pass.token_budget = l.budget;
    o.optimizer.lr = 1e-3;
    o.optimizer.grad_clip = kClip;
    o.total_updates = 10;
    o.recompute = {.granularity = l.recompute};
    if (l.aux) o.aux = {.sequence = true, .global = true, .coef = 0.2, .z_coef = 0.1};
    return o;
  }
  Ctx& ctx() { return backend_.ctx(); }
  Values read(const CTensor& t) { return decode(bytes_of(ctx(), t), t.dtype); }

  Values logprobs(const TrainedLayout& l, const Model& model, Comm& dp, const Pipeline& pipeline) {
    const std::vector<Trajectory> list = trajectories(l);
    Values flat;
    for (const auto& of :
         packed_logprobs(ctx(), model, dp, pointers(list), trainer_options(l).pass, pipeline))
      flat.insert(flat.end(), of.begin(), of.end());
    return flat;
  }
  static SumRanks sums_of(const Group& group) { return SumRanks(*group.mesh); }
  static Pipeline pipeline_of(const TrainedLayout& l, const Group& group) {
    return l.mesh.pp > 1 ? Pipeline(group.mesh->tensors(Axis::pp), group.mesh->control(Axis::pp))
                         : Pipeline();
  }
  void expect_logprobs(const TrainedLayout& l, const Group& group, DType dtype, const Trained& want) {
    const auto model = make(l, group.mesh.get(), dtype);
    expect_same_bits(fmt::format("log-probs, {}", dtype_name(dtype)),
                     logprobs(l, *model, group.mesh->control(Axis::dp), pipeline_of(l, group)),
                     want.logprobs);
  }

  /// What this rank has of gradients (its pieces) and weights (all of its rows).
  Trained train(const TrainedLayout& l, Model& model, Comm& all, Comm& dp, const SumRanks& replicas,
                const Pipeline& pipeline) {
    AlgorithmConfig algorithm_config;
    algorithm_config.clip_low = 0.999;
    algorithm_config.clip_high = 1e6;
    algorithm_config.entropy_coef = 0.1;
    algorithm_config.aggregation = l.aggregation;
    const std::unique_ptr<Algorithm> algorithm = make_algorithm(algorithm_config);
    const std::vector<Trajectory> list = trajectories(l);
    Trainer trainer(ctx(), model, all, dp, replicas, trainer_options(l), pipeline);
    Trained result;
    std::map<std::string, Values> before;
    for (const Parameter& p : model.parameters().list())
      if (!p.spec.trained) before[p.spec.name] = read(p.value);
    trainer.set_gradient_hook([&](Ctx&, ParameterStore&, int64_t) {
      auto& of = result.gradients.emplace_back();
      for (const OptimizerPiece& piece : trainer.optimizer().pieces())
        of[piece.parameter->spec.name] = read(piece.grad);
    });
    for (int i = 0; i < updates_; ++i) {
      const UpdateStats stats = trainer.update(ctx(), pointers(list), {model, *algorithm, 1.0, 32});
      EXPECT_EQ(stats.defect, "");
      result.norms.push_back(stats.grad_norm);
      result.microbatches.push_back(stats.num_microbatches);
    }
    trainer.trim(ctx());
    for (const Parameter& p : model.parameters().list()) result.weights[p.spec.name] = read(p.value);
    for (const auto& [name, values] : before) expect_same_bits(name, result.weights[name], values);
    pieces_ = trainer.optimizer().pieces();
    state_bytes_ = static_cast<double>(trainer.optimizer().state_bytes());
    return result;
  }

  /// Made once, by rank 0, for all.
  const Trained& of_one_rank(const TrainedLayout& l, const TypeChecks& of) {
    const DType dtype = of.dtype;
    const std::string key = fmt::format("{} {} {} {} {} {} {}", l.shape->text(), l.sequences, l.aggregation,
                                        dtype_name(dtype), l.frozen, l.aux, l.adapters);
    const auto [at, is_new] = ones_.try_emplace(key);
    if (!is_new) return at->second;
    Trained& one = at->second;
    if (comm_->rank() == 0) {
      TrainedLayout alone = l;
      alone.mesh = {};
      alone.zero = 1, alone.budget = 1000, alone.recompute = Recompute::none;
      const auto model = make(alone, nullptr, dtype);
      const Values before = logprobs(alone, *model, *alone_control_, {});
      if (of.gradients > 0) one = train(alone, *model, *alone_control_, *alone_control_, *alone_, {});
      one.logprobs = before;
    }
    share(one.logprobs), share(one.norms);
    if (of.gradients == 0) return one;
    one.gradients.resize(kUpdates);
    const Model names(l.config(), {dtype, 64});
    for (const Parameter& p : names.parameters().list()) {
      for (auto& update : one.gradients) share(update[p.spec.name]);
      share(one.weights[p.spec.name]);
    }
    return one;
  }
  void share(Values& values) {
    const std::string bytes = comm_->broadcast(
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)}, 0, "test: values");
    values.resize(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }

  void expect_updates(const TrainedLayout& l, const Group& group, TypeChecks of, const Trained& want) {
    if (l.shape->interval > 0) of.later *= 2;  // gates are steeper where a weight has moved the other way
    Trained first;
    for (const bool again : {false, true}) {
      const auto model = make(l, group.mesh.get(), of.dtype);
      Trained got =
          train(l, *model, *group.all, group.mesh->control(Axis::dp), sums_of(group), pipeline_of(l, group));
      if (again) {
        expect_same_bits("norms, again", got.norms, first.norms);
        for (const auto& [name, values] : first.weights)
          expect_same_bits(name + ", again", got.weights[name], values);
        for (size_t i = 0; i < first.gradients.size(); ++i)
          for (const auto& [name, values] : first.gradients[i])
            expect_same_bits(name + ", gradient again", got.gradients[i][name], values);
        return;
      }
      EXPECT_GT(want.norms.front(), kClip) << "nothing is clipped";
      expect_near("gradient norms", got.norms, want.norms, of.later);
      expect_gradients(*model, got, want, of, *group.all);
      expect_weights(*model, got, want, of.later);
      first = std::move(got);
    }
  }
  /// The pieces of all ranks together are every element once.
  void expect_gradients(const Model& model, const Trained& got, const Trained& want, const TypeChecks& of,
                        Comm& all) {
    std::vector<double> elements{0};
    for (const OptimizerPiece& piece : pieces_) {
      const std::string& name = piece.parameter->spec.name;
      for (const LogicalRange& range : logical_ranges(piece, model.splits().place().rank)) {
        if (range.first) elements[0] += static_cast<double>(range.own.size());
        for (int i = 0; i < kUpdates; ++i) {
          const Values &whole = want.gradients[static_cast<size_t>(i)].at(name),
                       &own = got.gradients[static_cast<size_t>(i)].at(name);
          expect_part(fmt::format("gradient {} of {}", i, name), own.data() + range.own.begin,
                      range.own.size(), whole, range.whole, i == 0 ? of.gradients : of.later);
        }
      }
    }
    all.all_reduce_sum(elements, "test: elements");
    double trained = 0;
    for (const Parameter& p : model.parameters().list())
      trained += p.spec.trained ? static_cast<double>(p.spec.size()) : 0;
    EXPECT_EQ(elements[0], trained);
  }
  void expect_weights(const Model& model, const Trained& got, const Trained& want, double tolerance) {
    for (const Parameter& p : model.parameters().list()) {
      const int64_t width = p.spec.size() / p.spec.shape[0];
      for (const RowSpan& span : p.spans)
        expect_part("weights of " + p.spec.name, got.weights.at(p.spec.name).data() + span.own * width,
                    span.rows * width, want.weights.at(p.spec.name), span.whole * width, tolerance);
    }
  }
  /// Relative to the largest of the whole parameter.
  static void expect_part(const std::string& name, const double* own, int64_t size, const Values& whole,
                          int64_t from, double tolerance) {
    double largest = 0, worst = 0;
    for (const double x : whole) largest = std::max(largest, std::abs(x));
    for (int64_t i = 0; i < size; ++i) {
      const double error = std::abs(own[i] - whole[static_cast<size_t>(from + i)]);
      if (!(error <= worst)) worst = error;
    }
    EXPECT_LE(worst, tolerance * largest) << name;
  }

  Backend backend_{device_of_layouts()};
  std::unique_ptr<Collectives> alone_ =
      test_world->make_collectives(test_world->rank(), 0, device_of_layouts(), "alone", kTestWaitLimit);
  std::unique_ptr<Comm> alone_control_ = test_world->make_comm(test_world->rank(), 0, kTestWaitLimit);
  std::map<std::string, Trained> ones_;
  int updates_ = kUpdates;
  double state_bytes_ = 0;              // of the last trainer, this rank's
  std::vector<OptimizerPiece> pieces_;  // of the last trainer: where they are in the whole
};

}  // namespace temper
