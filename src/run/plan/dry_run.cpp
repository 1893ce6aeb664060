#include "src/run/plan/dry_run.h"

#include <algorithm>
#include <limits>

#include "src/comm/alone/one_rank.h"
#include "src/models/parameter_specs.h"
#include "src/ops/backend.h"
#include "src/rl/registry.h"
#include "src/rollout/step_batch.h"
#include "src/rollout/step_routes.h"
#include "src/run/plan/full_batch.h"
#include "src/run/plan/fullest_step.h"
#include "src/run/plan/layout/layer_samples.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

/// The threads of a rank whose config leaves run.threads to the machine, which a plan does not know.
constexpr int64_t kAssumedThreads = 16;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
/// Micro-batches of more tokens, and steps of generation of more positions, are not made: what these many
/// take, and how much more that is than for half of them, says what any number takes.
constexpr int64_t kMostTokens = int64_t{1} << 18, kMostPositions = int64_t{1} << 26, kMostRunning = 1 << 14;

/// A rank beside others that send nothing. It does not add what comes, as those of one host with a GPU each
/// do: what memory takes pieces elsewhere is counted.
class SilentTransport : public Transport {
 public:
  SilentTransport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* carrier() const override { return "nothing"; }
  void exchange(Lane&, std::span<const Parcel>, std::span<const Parcel>, const char*) override {}

 private:
  int rank_, size_;
};

/// The one that counts for the device of the plan.
Device counting_device(const RunPlan& plan) {
  return plan.device == Device::cuda ? Device::meta_cuda : Device::meta;
}

Backend backend_of(const Config& config, Device device) {
  return Backend(device, static_cast<int>(config.run.threads.value_or(kAssumedThreads)));
}

Collectives silent_collectives(int ranks, int rank = 0) {
  return Collectives(std::make_unique<SilentTransport>(rank, ranks));
}

/// The share that is largest: chunks of a vocabulary may not go evenly.
ShardPlace largest_share(const ModelConfig& model, const RolePlan& role, const UnitSet& units = {}) {
  const ShardPlace all{0, role.tp(), units, 0, role.ep()};
  ShardPlace largest = all;
  if (all.ranks == 1) return all;
  const ParamSpec spec = parameter_specs(model).front();
  const auto rows = [&](const ShardPlace& of) { return row_spans(spec, of).front().rows; };
  for (ShardPlace of = all; of.rank < of.ranks; ++of.rank)
    if (rows(of) > rows(largest)) largest = of;
  return largest;
}

/// Sequences of these that one of the ranks of a role is dealt, where all are as long as they can be.
int64_t share_of(const RolePlan& role, int64_t sequences) {
  const int64_t ranks = role.dp();
  return (sequences + ranks - 1) / ranks;
}

std::vector<const Trajectory*> pointers(const std::vector<Trajectory>& all) {
  std::vector<const Trajectory*> list;
  for (const Trajectory& t : all) list.push_back(&t);
  return list;
}

/// `measure` of so many, by few: each one adds the same.
template <class Measure>
PhaseMemory by_few(int64_t number, int64_t few, const Measure& measure) {
  if (number <= few) return measure(number);
  const int64_t half = few / 2, more = (number - few + half - 1) / half;
  const PhaseMemory a = measure(half), b = measure(few);
  const auto with_more = [&](int64_t of_half, int64_t of_few) {
    const int64_t added = saturating_multiply(of_few - of_half, more);
    return of_few + std::min(added, kAll - of_few);
  };
  return {with_more(a.activations, b.activations), with_more(a.workspace, b.workspace)};
}

PhaseMemory larger(const PhaseMemory& a, const PhaseMemory& b) {
  return {std::max(a.activations, b.activations), std::max(a.workspace, b.workspace)};
}

/// `measure` of these layers, by models with few of each kind: each layer of a kind adds the same to what is
/// kept, and no more than two have temporaries at once. Not so where runs of layers are computed again.
template <class Measure>
PhaseMemory of_layers(const SomeLayers& all, const Config& config, Device device, const Measure& measure) {
  if (!counts_only(device) || config.train.recompute.granularity == "full") return measure(all);
  const LayerSamples samples = samples_of(all);
  const PhaseMemory each = measure(samples.one_each);
  PhaseMemory sum = each;
  for (const LayerSamples::More& more : samples.more) {
    const PhaseMemory with = measure(more.layers);
    sum.activations += saturating_multiply(with.activations - each.activations, more.times);
    sum.workspace = std::max(sum.workspace, with.workspace);
  }
  return sum;
}

/// The experts of so many rows are in memory for all layers at once: bytes for those that a sample lacks.
int64_t more_routes(const RouteShape& routes, const ModelConfig& model, const SomeLayers& sample,
                    int64_t rows) {
  if (routes.layers == 0) return 0;
  const int64_t of_layer = saturating_multiply(rows, routes.chosen * dtype_size(DType::i32));
  return saturating_multiply(of_layer, model.num_layers - sample.model.num_layers);
}

SomeLayers layers_of(const ModelConfig& model, const RoleStage& of) {
  const LayerRanges& parts = of.role.stages[static_cast<size_t>(of.stage)];
  const SomeLayers ends{model, {parts.front().begin, parts.back().end}};
  if (parts.size() == 1) return ends;
  std::vector<int64_t> own;
  for (const LayerRange& part : parts)
    for (int64_t layer = part.begin; layer < part.end; ++layer) own.push_back(layer);
  return instead(ends, std::move(own));
}

/// A stage beside others that send nothing.
class SilentPipeline {
 public:
  explicit SilentPipeline(const RoleStage& of) : tensors_(silent_collectives(of.role.pp(), of.stage)) {}
  Pipeline get() { return tensors_.size() > 1 ? Pipeline(tensors_, control_) : Pipeline(); }

 private:
  Collectives tensors_;
  OneRank control_;
};

ModelOptions model_options(const RunPlan& plan, bool trains, Device device) {
  const int64_t context = plan.lengths.context;
  return {.dtype = plan.dtype, .context_tokens = context, .with_gradients = trains, .device = device};
}

/// `measure` of a model like that of a role, as one of the ranks that share it has it, and of what they share
/// it by.
template <class Measure>
auto with_share_of(const RolePlan& role, const SomeLayers& some, ModelOptions options, const GridPlace& place,
                   const Measure& measure) {
  const auto along = [&](Axis axis) { return silent_collectives(role.grid.along(axis), place.at[axis]); };
  Collectives tp = along(Axis::tp), cp = along(Axis::cp), ep = along(Axis::ep),
              owners = silent_collectives(role.replicas(), place.replica),
              of_experts = silent_collectives(role.grid.along(Axis::edp), place.expert_replica);
  options.layers = {some.layers};
  if (options.with_gradients) {
    options.unit_shards = role.unit_shards(place.replica, place.expert_replica);
    options.splits.owners = &owners;
    options.splits.expert_owners = role.grid.cuts_experts_apart() ? &of_experts : &owners;
  }
  if (cp.size() > 1) options.splits.cp = &cp;
  if (tp.size() > 1) options.splits.tp = &tp;
  if (role.ep() > 1) options.splits.ep = role.grid.cuts_experts_apart() ? &ep : &tp;
  return measure(Model(some.model, options));
}

/// The most of this, as ranks with the largest share have it: of those that share tokens the first one, which
/// may have all of a prompt, and the last one, which may have all of a response.
template <class Measure>
PhaseMemory with_model_of(const RolePlan& role, const SomeLayers& some, const ModelOptions& options,
                          const Measure& measure) {
  const int rank = largest_share(some.model, role).rank, last = role.cp() - 1;
  const auto of = [&](int cp) {
    GridPlace place;
    place.at[Axis::tp] = rank;
    place.at[Axis::cp] = cp;
    return with_share_of(role, some, options, place, measure);
  };
  return last > 0 ? larger(of(0), of(last)) : of(0);
}

/// `measure` of these layers, by models with few of each kind: each layer of a kind sends the same, but where
/// runs of layers are computed again.
template <class Measure>
AxisBytes bytes_of_layers(const SomeLayers& all, const Config& config, const Measure& measure) {
  if (config.train.recompute.granularity == "full") return measure(all);
  const LayerSamples samples = samples_of(all);
  const AxisBytes each = measure(samples.one_each);
  AxisBytes sum = each;
  for (const LayerSamples::More& more : samples.more) sum = sum + more.times * (measure(more.layers) - each);
  return sum;
}

SumRanks sum_ranks_of(const Model& model) {
  const Splits& by = model.splits();
  return SumRanks(
      [&by](AxisSet axes) -> Collectives& { return *(axes == kReplicas ? by.owners : by.expert_owners); });
}

/// What the first rank with the largest share of a stage's units holds.
TrainedMemory stage_memory(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                           const Config& config, const UnitSet& units) {
  const Device device = counting_device(plan);
  const bool trains = role.traits->trains();
  const ShardPlace share = largest_share(model, role, units);
  ParameterStore store;
  for (ParamSpec& spec : parameter_specs(model)) store.add(std::move(spec), share);
  store.allocate(plan.dtype, trains, device,
                 trains || role.keeps_shards() ? role.unit_shards(0, 0) : UnitShards{});
  TrainedMemory memory{.weights = store.value_bytes(),
                       .weight_shards = store.own_value_bytes(),
                       .weight_windows = store.value_window_bytes()};
  for (const Unit& unit : store.units())
    if (model.adapters.on() && unit.trained) memory.adapters += store.values_of(unit).bytes();
  if (!trains) return memory;
  memory.gradients = store.grad_bytes();
  Collectives dp = silent_collectives(role.replicas()), edp = silent_collectives(role.grid.along(Axis::edp));
  const SumRanks over([&](AxisSet axes) -> Collectives& { return axes == kReplicas ? dp : edp; });
  Backend backend = backend_of(config, device);
  memory.optimizer = Optimizer(backend.ctx(), store, config.optimizer, over, 0,
                               plan.optimizer_in_host ? StatePlace::host : StatePlace::device)
                         .state_bytes();
  return memory;
}

}  // namespace

ModelMemory model_memory(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                         const Config& config) {
  const ModelConfig one = with_layers(model, {0});
  ModelMemory memory{.stages = {},
                     .tables = Model(one, model_options(plan, false, counting_device(plan))).table_bytes()};
  for (const UnitSet& units : role.holders().stages)
    memory.stages.push_back(stage_memory(plan, role, model, config, units));
  return memory;
}

std::vector<MicrobatchMemory> microbatch_memory(const RunPlan& plan, const ModelConfig& model,
                                                const Config& config, const RoleStage& of,
                                                std::optional<Device> real) {
  const Device device = real.value_or(counting_device(plan));
  const int64_t update = share_of(of.role, plan.batch.samples_per_update);
  const std::unique_ptr<Algorithm> algorithm = make_algorithm(config.algorithm);
  std::vector<MicrobatchMemory> kinds;
  TrainerOptions options = trainer_options(config, plan, of.role);
  options.pass.least_of_stages = 0;  // the fullest one
  const int64_t budget = plan.budget_of(of.role);
  for (const FullBatch& full : fullest(plan, update)) {
    std::vector<Trajectory> all;
    const auto measure = [&](Model part) {
      Backend backend = backend_of(config, device);
      OneRank control;
      SilentPipeline pipeline(of);
      Trainer trainer(backend.ctx(), part, control, control, sum_ranks_of(part), options, pipeline.get());
      const PolicyObjective objective(part, *algorithm, config.rollout.temperature, plan.lengths.max_new);
      trainer.update(backend.ctx(), pointers(all), objective);
      return PhaseMemory{trainer.activation_bytes(), backend.ctx().scratch.peak_bytes()};
    };
    const auto of_tokens = [&](int64_t tokens) {
      all = filled(plan, tokens, full);
      return of_layers(layers_of(model, of), config, device, [&](const SomeLayers& some) {
        return with_model_of(of.role, some, model_options(plan, true, device), measure);
      });
    };
    kinds.push_back({by_few(full.tokens(budget), kMostTokens, of_tokens), full.sequences(budget)});
  }
  return kinds;
}

namespace {

/// A micro-batch has at most so many sequences.
PhaseMemory logprobs_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                            const RoleStage& of, Device device, int64_t most_sequences) {
  PassOptions pass = pass_options(config, plan, of.role);
  pass.least_of_stages = 0;  // the fullest one
  PhaseMemory most;
  for (const FullBatch& full : fullest(plan, most_sequences)) {
    const auto of_tokens = [&](int64_t tokens) {
      const std::vector<Trajectory> all = filled(plan, tokens, full);
      return of_layers(layers_of(model, of), config, device, [&](const SomeLayers& some) {
        Backend backend = backend_of(config, device);
        SilentPipeline pipeline(of);
        return with_model_of(of.role, some, model_options(plan, false, device), [&](const Model& layers) {
          local_logprobs(backend.ctx(), layers, pointers(all), pass, pipeline.get());
          return PhaseMemory{
              0, backend.ctx().scratch.peak_bytes() + more_routes(pass.routes.shape, model, some, tokens)};
        });
      });
    };
    most = larger(most, by_few(full.tokens(pass.token_budget), kMostTokens, of_tokens));
  }
  return most;
}

}  // namespace

PhaseMemory logprob_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                           const RoleStage& of, std::optional<Device> real) {
  return logprobs_memory(plan, model, config, of, real.value_or(counting_device(plan)),
                         share_of(of.role, plan.batch.samples_per_step));
}

PhaseMemory generate_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                            const RoleStage& of, std::optional<Device> real) {
  const Device device = real.value_or(counting_device(plan));
  GenerateOptions options;
  options.sampling = sample_options(config.rollout);
  options.num_sampleable = model.vocab_size;
  const Sampler sampler(options.num_sampleable);
  const auto rules = std::make_shared<const ResponseRules>(options);
  const auto measure = [&](int64_t running, int64_t prefilled) {
    RunPlan fewer = plan;
    fewer.cache.running_sequences = running;
    std::vector<Sequence> sequences = fullest_step(fewer, prefilled);
    for (Sequence& s : sequences) s.rules = rules;
    return of_layers(layers_of(model, of), config, device, [&](const SomeLayers& some) {
      Backend backend = backend_of(config, device);
      Ctx& c = backend.ctx();
      SilentPipeline pipeline(of);
      return with_model_of(of.role, some, model_options(plan, false, device), [&](const Model& layers) {
        KvCache cache(KvShape(layers), 1, plan.cache.page_tokens, false, c.lane);  // all use this page
        cache.keep_states(layers, 1);
        std::vector<ScheduledRows> rows;
        for (Sequence& s : sequences) rows.push_back({&s, s.missing(), s.cached});
        const StepBatch batch(rows);
        const int64_t width = model.hidden_size;
        if (of.role.vpp() > 1 && of.stage == 0)  // what comes back from the last stage
          c.scratch.make({2 * batch.num_rows(), width}, plan.dtype);
        const Tensor x = pipeline.get().receive(c, batch.num_rows(), width, plan.dtype);
        const StepRoutes routes(c, layers.config(), plan.routes, batch.num_rows());
        const Tensor hidden = batch.forward(c, layers, cache, x, routes.notes());
        std::vector<DrawTarget> targets = batch.last_rows();
        while (std::ssize(targets) < running) targets.push_back(targets.back());
        if (layers.is_last()) sampler.draw(c, layers.head(), hidden, targets);
        return PhaseMemory{0,
                           c.scratch.peak_bytes() + more_routes(plan.routes, model, some, batch.num_rows())};
      });
    });
  };
  const int64_t few = std::clamp(kMostPositions / plan.lengths.context, int64_t{2}, kMostRunning);
  const auto of_step = [&](int64_t prefilled) {
    return by_few(plan.cache.running_sequences, few, [&](int64_t n) { return measure(n, prefilled); });
  };
  PhaseMemory most = of_step(config.rollout.prefill_chunk_tokens);
  // Recorded steps have scratch memory of their own.
  if (like_gpu(device) && of.role.grid.size(kModel) == 1)
    most.workspace += std::min(of_step(recorded_prefill(plan, config)).workspace, kAll - most.workspace);
  return most;
}

PhaseMemory validation_memory(const RunPlan& plan, const ModelConfig& model, const Config& config,
                              const RoleStage& of) {
  PhaseMemory memory;
  if (plan.validation.generates) memory = generate_memory(plan, model, config, of);
  if (plan.validation.loss)
    memory = larger(memory, logprobs_memory(plan, model, config, of, counting_device(plan), kAll));
  return memory;
}

AxisBytes update_bytes(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                       const Config& config, const GridPlace& place, int64_t sequences) {
  const Device device = counting_device(plan);
  const std::unique_ptr<Algorithm> algorithm = make_algorithm(config.algorithm);
  const std::vector<Trajectory> all = longest(plan, sequences);
  const RoleStage of{role, place.at[Axis::pp]};
  return bytes_of_layers(layers_of(model, of), config, [&](const SomeLayers& some) {
    return with_share_of(role, some, model_options(plan, true, device), place, [&](Model part) {
      Backend backend = backend_of(config, device);
      OneRank control;
      SilentPipeline pipeline(of);
      Trainer one(backend.ctx(), part, control, control, sum_ranks_of(part),
                  trainer_options(config, plan, role), pipeline.get());
      const PolicyObjective objective(part, *algorithm, config.rollout.temperature, plan.lengths.max_new);
      return one.update(backend.ctx(), pointers(all), objective).sent;
    });
  });
}

AxisBytes logprob_bytes(const RunPlan& plan, const RolePlan& role, const ModelConfig& model,
                        const Config& config, const GridPlace& place) {
  const Device device = counting_device(plan);
  const std::vector<Trajectory> all = longest(plan, 1);
  const RoleStage of{role, place.at[Axis::pp]};
  return bytes_of_layers(layers_of(model, of), config, [&](const SomeLayers& some) {
    return with_share_of(role, some, model_options(plan, false, device), place, [&](const Model& layers) {
      Backend backend = backend_of(config, device);
      SilentPipeline stages(of);
      const Pipeline pipeline = stages.get();
      local_logprobs(backend.ctx(), layers, pointers(all), pass_options(config, plan, role), pipeline);
      const Splits& by = layers.splits();
      return AxisBytes{{Axis::tp, by.tp ? by.tp->bytes_sent() : 0},
                       {Axis::cp, by.cp ? by.cp->bytes_sent() : 0},
                       {Axis::pp, pipeline.bytes_sent()},
                       {Axis::ep, by.ep && by.ep != by.tp ? by.ep->bytes_sent() : 0}};
    });
  });
}

}  // namespace temper
