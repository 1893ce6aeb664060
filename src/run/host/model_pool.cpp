#include "src/run/host/model_pool.h"

#include <algorithm>

#include "src/run/plan/run_options.h"

namespace temper {

ModelPool::ModelPool(const Config& config, const RunPlan& plan, Meshes& meshes, ModelHost& host,
                     MemoryLedger& memory, int rank)
    : config_(config), plan_(plan), meshes_(meshes), host_(host), memory_(memory), rank_(rank) {}

ModelSource ModelPool::source_of(const RolePlan& role) const {
  if (const auto& path = config_.roles.of(role.name()).path) {
    ModelSource own;
    own.folder = *path, own.context_tokens = plan_.lengths.context;
    own.allow_unused = config_.model.allow_unused;
    return own;
  }
  ModelSource source = temper::first_weights(config_, plan_);
  if (!role.traits->of_policy && config_.lora.path.empty()) source.adapters = {};
  return source;
}

bool ModelPool::are_one(const Held& held, const RolePlan& role, const std::string& folder) const {
  const RolePlan& other = *held.role;
  if (&other == &role) return true;
  if (plan_.shares_base(role, rank_)) return other.traits->leads();
  if (other.traits->of_policy != role.traits->of_policy) return false;
  if (role.traits->of_policy) return plan_.shares_buffers(rank_);
  return !other.traits->trains() && !role.traits->trains() && held.folder == folder &&
         held.mesh == meshes_.of(role) && other.stages == role.stages && other.zero == role.zero &&
         other.in_host == role.in_host;
}

/// Where some ranks of a role have roles that others do not have, they do not load the same models in the
/// same order; but what is trained comes first on all of them.
Comm* ModelPool::loaders(const RolePlan& role) const {
  Mesh* const mesh = meshes_.of(role);
  if (!mesh) return nullptr;
  const auto alike = [&](const auto& holds) {
    const auto count = std::count_if(role.ranks.begin(), role.ranks.end(), holds);
    return count == 0 || count == std::ssize(role.ranks);
  };
  bool together = alike([&](int rank) { return plan_.in_trainer_mesh(role, rank); });
  for (const RolePlan& other : plan_.roles)
    together = together && alike([&](int rank) { return other.has(rank); });
  Comm& all = mesh->control(AxisSet::all());
  return role.traits->leads() || (together && all.size() == std::ssize(role.ranks)) ? &all : nullptr;
}

std::unique_ptr<Model> ModelPool::make(const RolePlan& role, const ModelSource& source) {
  ModelOptions options = meshes_.share_of(role).options;
  const bool sent = role.traits->of_policy && !role.traits->trains() && trained_;  // all of its weights
  if (!sent || source.adapters.on()) return host_.load(source, options, loaders(role));
  options.dtype = trained_->dtype();
  options.context_tokens = trained_->context_tokens();
  options.device = trained_->device();
  return std::make_unique<Model>(trained_->config(), options);
}

Model& ModelPool::of(const RolePlan& role) {
  // What is trained comes first: a model that generates beside it gets its weights from there.
  if (role.traits->of_policy && !role.traits->trains() && plan_.trains(rank_) && !trained_)
    of(plan_.trainer());
  const ModelSource source = source_of(role);
  Model* model = nullptr;
  for (const Held& held : held_)
    if (are_one(held, role, source.folder)) model = held.model.get();
  if (!model) {
    const Held& held = held_.emplace_back(&role, source.folder, meshes_.of(role), make(role, source));
    model = held.model.get();
    if (role.in_host) model->parameters().move_to_host(host_.ctx().lane);
    memory_.add(model->device(), [model] { return model->held_bytes(); });
    memory_.add(Device::cpu, [model] { return model->parameters().host_bytes(); });
  }
  if (role.traits->leads() && !trained_) keep_first(*model);
  if (role.traits->leads()) trained_ = model;
  if (role.traits->of_policy && role.traits->generates()) generating_ = model;
  return *model;
}

/// Before a checkpoint changes what is trained.
void ModelPool::keep_first(Model& model) {
  const auto shares = [&](const RolePlan& role) { return plan_.shares_base(role, rank_); };
  if (std::none_of(plan_.roles.begin(), plan_.roles.end(), shares)) return;
  first_ = std::make_unique<FirstWeights>(host_.ctx(), model, !config_.lora.path.empty());
  memory_.add(model.device(), [this] { return first_->held_bytes(); });
}

Engine& ModelPool::engine(const RolePlan& role) {
  Model& model = of(role);
  std::unique_ptr<Engine>& engine = engines_[&model];
  if (!engine) {
    const ModelShare share = meshes_.share_of(role);
    engine = std::make_unique<Engine>(model, engine_options(config_, plan_, share), host_.ctx().lane,
                                      share.pipeline);
    engine->suspend();
    memory_.add(model.device(), [engine = engine.get()] { return engine->held_bytes(); });
  }
  return *engine;
}

void ModelPool::suspend_engines() {
  for (const auto& [model, engine] : engines_) engine->suspend();
}

}  // namespace temper
