#include "src/run/host/model_share.h"

#include "src/run/plan/run_options.h"

namespace temper {

ModelShare share_of(const RolePlan& role, int rank, Mesh* mesh) {
  ModelShare share;
  share.mesh = mesh;
  ModelOptions& options = share.options;
  options.with_gradients = role.traits->trains();
  if (role.pp() > 1) options.layers = role.layers_of(rank);
  if (!mesh) return share;
  // In a mesh of the trainer's the role's team may be a smaller one than the axes have there.
  if (role.team_size() > 1) share.team = Team(mesh->control(role.grid.wide(role.team_axes())));
  if (role.pp() > 1) share.pipeline = Pipeline(mesh->tensors(Axis::pp), mesh->control(Axis::pp));
  options.splits.tp = &mesh->tensors(Axis::tp);
  if (role.cp() > 1) options.splits.cp = &mesh->tensors(Axis::cp);
  if (role.ep() > 1) options.splits.ep = &mesh->tensors(Axis::ep);
  options.splits.ep_spans_batches = role.ep_spans_batches();
  if (!role.traits->trains() && !role.keeps_shards()) return share;
  Collectives &replicas = mesh->tensors(kReplicas), &of_experts = mesh->tensors(Axis::edp);
  options.unit_shards = role.unit_shards(replicas.rank(), of_experts.rank());
  if (!options.unit_shards.of_values) return share;
  options.splits.owners = &replicas;
  options.splits.expert_owners = &of_experts;
  return share;
}

EngineOptions engine_options(const Config& config, const RunPlan& plan, const ModelShare& share) {
  EngineOptions options = engine_options(config, plan);
  const Splits& by = share.options.splits;
  if (by.ep_spans_teams())  // neighbours along cp generate apart, too
    options.others = &share.mesh->control(by.cp_ranks() > 1 ? AxisSet::all() : AxisSet(Axis::dp));
  return options;
}

Meshes::Meshes(const MpiSession& mpi, const RunPlan& plan, Device device, double wait_limit_seconds)
    : plan_(plan), rank_(mpi.rank()) {
  const auto add = [&](const RolePlan& role) {
    meshes_[role.traits] = std::make_unique<Mesh>(mpi, role.ranks, role.grid, device, wait_limit_seconds);
  };
  add(plan.trainer());
  for (const RolePlan& role : plan.roles)
    if (plan.has_own_mesh(role)) add(role);
}

Mesh* Meshes::of(const RolePlan& role) {
  if (role.traits->leads()) return &trainer();
  if (!role.traits->trains() && role.grid.size(kTeam) == 1 && role.team_size() == 1) return nullptr;
  return plan_.in_trainer_mesh(role, rank_) ? &trainer() : meshes_.at(role.traits).get();
}

}  // namespace temper
