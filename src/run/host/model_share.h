#pragma once
// What a rank has of a role's model, and with whom: one value, from one function.

#include <map>
#include <memory>
#include <string>

#include "src/comm/mesh.h"
#include "src/models/model.h"
#include "src/nn/parallel/pipeline.h"
#include "src/rollout/engine.h"
#include "src/run/host/team.h"
#include "src/run/plan/plan.h"

namespace temper {

struct ModelShare {
  Mesh* mesh = nullptr;  // of the ranks that share the model or its work; null: this one has it alone
  Team team;             // the ranks that do the same work together
  Pipeline pipeline;     // the model's stages
  ModelOptions options;  // layers, splits, shards, gradients; the rest is the host's to say
};

/// `rank` has the role. `mesh`: Meshes::of.
ModelShare share_of(const RolePlan& role, int rank, Mesh* mesh);
/// What generates with such a share.
EngineOptions engine_options(const Config& config, const RunPlan& plan, const ModelShare& share);

/// The meshes of a run: the trainer's, and one for each role whose ranks share a model in another way.
class Meshes {
 public:
  /// Every rank of the world calls it.
  Meshes(const MpiSession& mpi, const RunPlan& plan, Device device, double wait_limit_seconds);

  /// Its ranks alone use it.
  Mesh& trainer() { return *meshes_.at(plan_.trainer().traits); }
  /// The mesh in which this rank, which has the role, shares its model; null: it has it alone. The trainer's,
  /// where the role has the same team.
  Mesh* of(const RolePlan& role);
  /// What this rank, which has the role, has of its model.
  ModelShare share_of(const RolePlan& role) { return temper::share_of(role, rank_, of(role)); }

 private:
  const RunPlan& plan_;
  int rank_;
  std::map<const RoleTraits*, std::unique_ptr<Mesh>> meshes_;
};

}  // namespace temper
