#include "src/models/model.h"

#include "src/models/parameter_specs.h"
#include "src/nn/rope_table.h"
#include "src/ops/attention.h"
#include "src/ops/embedding.h"
#include "src/ops/hybrid/delta.h"

namespace temper {

int64_t num_layers(const LayerRanges& parts) {
  int64_t layers = 0;
  for (const LayerRange& part : parts) layers += part.end - part.begin;
  return layers;
}

UnitSet units_of(const LayerRanges& parts, int64_t num_layers) {
  UnitSet set{{}};
  for (const LayerRange& layers : parts)
    set.ranges.push_back({layers.begin == 0 ? 0 : layers.begin + 1,
                          layers.end == num_layers ? num_layers + 2 : layers.end + 1});
  return set;
}

std::string shape_defect(const ModelConfig& c, Device device) {
  const int64_t step = head_dim_step(device), widest = std::max(c.delta.key_dim, c.delta.value_dim);
  if (c.head_dim % step != 0 || c.head_dim > kMaxHeadDim)
    return fmt::format("head_dim is {}; attention{} takes multiples of {} up to {}", c.head_dim,
                       like_gpu(device) ? " on a GPU" : "", step, kMaxHeadDim);
  if (!c.delta.layers.empty() && like_gpu(device) && widest > kMaxDeltaHeadDim)
    return fmt::format("heads of gated delta nets have {} elements; on a GPU they have at most {}", widest,
                       kMaxDeltaHeadDim);
  return "";
}

void check_supported(const ModelConfig& c, const std::string& source, Device device) {
  const std::string defect = shape_defect(c, device);
  if (defect.empty()) return;
  const bool cpu_can = shape_defect(c, Device::cpu).empty();
  fail(Exit::data, {.what = "this head dimension is not supported",
                    .where = source,
                    .why = defect,
                    .fix = cpu_can ? "run it on the CPU: --device cpu, in a config run.device = \"cpu\""
                                   : "use a model with another head_dim"});
}

Model::Model(const ModelConfig& config, const ModelOptions& options)
    : config_(config),
      options_(options),
      parts_(options.layers.empty() ? LayerRanges{{0, config.num_layers}} : options.layers),
      tables_(options.device) {
  for (const LayerRange& part : parts_)
    CHECK(part.begin >= 0 && part.begin < part.end && part.end <= config.num_layers, "layers {} to {} of {}",
          part.begin, part.end, config.num_layers);
  make_parameters();
  if (Collectives* const owners = options_.splits.owners) {
    Collectives* const of_experts = options_.splits.expert_owners;
    gather_ = std::make_unique<UnitGather>(*owners, of_experts ? *of_experts : *owners, device());
  }
  make_rope();
  make_layers();
}

void Model::make_parameters() {
  for (ParamSpec& spec : parameter_specs(config_)) parameters_.add(std::move(spec), place());
  parameters_.allocate(options_.dtype, options_.with_gradients, options_.device, options_.unit_shards);
}

ShardPlace Model::place() const {
  ShardPlace place = options_.splits.place();
  place.units = units_of(parts_, config_.num_layers);
  return place;
}

/// Null where this model has no such parameter.
Parameter* Model::find(const std::string& name) {
  for (Parameter& p : parameters_.list())
    if (p.spec.name == name) return &p;
  return nullptr;
}

Parameter& Model::get(const std::string& name) {
  Parameter* found = find(name);
  CHECK(found != nullptr, "no parameter {}", name);
  return *found;
}

void Model::make_layers() {
  embedding_ = find("embed");
  int64_t attention = 0, delta_nets = 0;
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    if (!place().units.has(i + 1)) continue;
    const std::string p = layer_unit_name(i) + ".";
    int64_t& number = config_.delta.layers.contains(i) ? delta_nets : attention;
    decoder_.try_emplace(i, make_norm(p + "attn_norm"), make_mixer(i, number++), make_norm(p + "mlp_norm"),
                         make_feed_forward(i));
  }
  if (!is_last()) return;
  norm_ = std::make_unique<Norm>(make_norm("norm"));
  head_ = std::make_unique<LogprobHead>(get(config_.tie_word_embeddings ? "embed" : "head"), options_.splits);
}

Norm Model::make_norm(const std::string& name) {
  return {get(name), config_.rms_norm_eps, /*offset=*/config_.is_hybrid};
}

/// `number`: of the layer among those with the same kind of mixer that are here.
Mixer Model::make_mixer(int64_t layer, int64_t number) {
  const std::string p = layer_unit_name(layer) + ".";
  if (config_.delta.layers.contains(layer))
    return DeltaNet(config_, number,
                    {&get(p + "delta.w_in"), &get(p + "delta.conv"), &get(p + "delta.a_log"),
                     &get(p + "delta.dt_bias"), &get(p + "delta.norm"), &get(p + "delta.w_out")},
                    options_.splits);
  const Attention::Parameters attention{.wqkv = &get(p + "attn.wqkv"),
                                        .bqkv = find(p + "attn.bqkv"),
                                        .q_norm = find(p + "attn.q_norm"),
                                        .k_norm = find(p + "attn.k_norm"),
                                        .wo = &get(p + "attn.wo"),
                                        .bo = find(p + "attn.bo"),
                                        .qkv_adapter = adapter_of(p + "attn.wqkv"),
                                        .o_adapter = adapter_of(p + "attn.wo")};
  if (config_.is_hybrid) return GatedAttention(config_, number, attention, rope_, options_.splits);
  return Attention(config_, number, attention, rope_, options_.splits);
}

FeedForward Model::make_feed_forward(int64_t layer) {
  const std::string p = layer_unit_name(layer) + ".";
  if (!config_.moe.layers.contains(layer)) return make_mlp(p + "mlp.");
  std::optional<Mlp> shared;
  if (config_.moe.shared_size > 0) shared = make_mlp(p + "shared.");
  return Moe(config_.moe, {&get(p + "moe.router"), &get(p + "moe.wgu"), &get(p + "moe.wd")}, shared,
             options_.splits.ep, options_.splits.ep_spans_teams());
}

Mlp Model::make_mlp(const std::string& prefix) {
  return {Linear(get(prefix + "wgu"), find(prefix + "bgu"), options_.splits, Parallel::column,
                 adapter_of(prefix + "wgu")),
          Linear(get(prefix + "wd"), find(prefix + "bd"), options_.splits, Parallel::row,
                 adapter_of(prefix + "wd"))};
}

Adapter Model::adapter_of(const std::string& weight) {
  Parameter* const a = find(weight + ".lora_a");
  if (!a) return {};
  return {*a, get(weight + ".lora_b"), get(weight), config_.adapters.scale(), uses_adapters_};
}

void Model::make_rope() {
  const DType dtype = accumulate_dtype(options_.dtype);
  rope_.cosine = tables_.make({context_tokens(), config_.rope_width() / 2}, dtype);
  rope_.sine = tables_.like(rope_.cosine);
  if (counts_only(device())) return;
  const RopeTable table = make_rope_table(config_.rope, config_.rope_width(), context_tokens());
  Arena host;
  const Tensor cosine = host.like(rope_.cosine), sine = host.like(cosine);
  fill_cos_sin(table, context_tokens(), cosine, sine);
  device::upload(device(), rope_.cosine.raw(), cosine.data, cosine.bytes());
  device::upload(device(), rope_.sine.raw(), sine.data, sine.bytes());
}

VocabularyShare Model::embedding_share() const {
  return {embedding_->spans.front().whole, config_.vocab_size};
}

void Model::gather(Ctx& c, UnitGroup units) const {
  if (gather_) gather_->gather(c, parameters_, units);
}

void Model::expect_gathers(std::vector<UnitGroup> units) const {
  if (gather_) gather_->expect(std::move(units));
}

Residual Model::begin(Ctx& c, const Batch& b, bool keep) const {
  const Tensor stream = c.memory(keep).make({stream_rows(b.stream()), config_.hidden_size}, dtype());
  const ArenaScope scope(c.scratch);
  const Tensor all = shares(b) ? c.scratch.make({b.num_tokens(), config_.hidden_size}, dtype()) : stream;
  embedding_forward(c, all, b.tokens, embedding_->value, embedding_share());
  if (shares(b))
    copy_own_tokens(c, *options_.splits.tp, stream, all);
  else if (options_.splits.shares())
    copy_owned(c, *options_.splits.tp, stream);
  return {stream, {}};
}

Tensor Model::end(Ctx& c, const Batch& b, const Residual& x, NormSaved* saved) const {
  const Tensor hidden = c.scratch.make({b.num_tokens(), config_.hidden_size}, dtype());
  const Tensor sum = c.memory(saved != nullptr).like(x.stream),
               own = shares(b) ? c.scratch.like(sum) : hidden;
  norm_->forward_residual(c, own, sum, x.stream, x.delta, saved, saved ? Keep::all(*c.saved) : Keep{});
  if (shares(b)) gather_tokens(c, *options_.splits.tp, hidden, own);
  return hidden;
}

void Model::end_backward(Ctx& c, const Batch& b, const Tensor& dx, const CTensor& dhidden,
                         const NormSaved& saved) const {
  const FlatRange own = options_.splits.own_tokens(b.stream());
  norm_->backward_into(c, dx, rows(dhidden, own.begin, own.end), {}, saved);
}

void Model::begin_backward(Ctx& c, const Batch& b, const CTensor& dx) const {
  if (!embedding_->has_grad()) return;
  const ArenaScope scope(c.scratch);
  CTensor all = dx;
  if (shares(b)) {
    const Tensor gathered = c.scratch.make({b.num_tokens(), config_.hidden_size}, dtype());
    gather_tokens(c, *options_.splits.tp, gathered, dx);
    all = gathered;
  }
  embedding_backward(c, embedding_->grad_sum(c.lane), all, b.tokens, config_.pad_token_id, embedding_share());
}

}  // namespace temper
