#pragma once
// The models of a rank, and what generates with them. A role asks for its own: equal ones are one.

#include <deque>
#include <map>
#include <memory>

#include "src/rollout/engine.h"
#include "src/run/host/first_weights.h"
#include "src/run/host/model_host.h"
#include "src/run/host/model_share.h"
#include "src/run/record/memory_ledger.h"

namespace temper {

class ModelPool {
 public:
  /// All of them outlive the pool; what it makes is told to `memory`.
  ModelPool(const Config& config, const RunPlan& plan, Meshes& meshes, ModelHost& host, MemoryLedger& memory,
            int rank);

  /// The model of a role that this rank has, with its first weights, made when it is first asked for. The
  /// policy that is trained here is also the one that generates, where both roles have the same team; else
  /// the weights of what generates come with the first version. Frozen models of one folder and one share are
  /// one; where adapters are trained, frozen weights that are their base are those of the policy.
  Model& of(const RolePlan& role);
  /// The weights of a role that has the policy's base; null: its model is its own.
  FirstWeights* first_weights(const RolePlan& role) const {
    return plan_.shares_base(role, rank_) ? first_.get() : nullptr;
  }
  /// What generates with the model of a role.
  Engine& engine(const RolePlan& role);
  /// The policy that this rank trains; null: it trains none.
  Model* trained() const { return trained_; }
  /// The policy that this rank generates with; null: it does not.
  Model* generating() const { return generating_; }
  /// After a phase: memory of the engines is the next one's.
  void suspend_engines();

 private:
  struct Held {
    const RolePlan* role;  // the first that asked for it
    std::string folder;
    const Mesh* mesh;
    std::unique_ptr<Model> model;
  };
  ModelSource source_of(const RolePlan& role) const;
  /// Both roles work with one model on this rank.
  bool are_one(const Held& held, const RolePlan& role, const std::string& folder) const;
  /// The ranks that load a role's weights at the same time as this one; null: it loads them alone.
  Comm* loaders(const RolePlan& role) const;
  void keep_first(Model& model);
  std::unique_ptr<Model> make(const RolePlan& role, const ModelSource& source);

  const Config& config_;
  const RunPlan& plan_;
  Meshes& meshes_;
  ModelHost& host_;
  MemoryLedger& memory_;
  int rank_;
  std::deque<Held> held_;
  std::map<const Model*, std::unique_ptr<Engine>> engines_;
  Model *trained_ = nullptr, *generating_ = nullptr;
  std::unique_ptr<FirstWeights> first_;  // of what is trained
};

}  // namespace temper
