#pragma once
// What a rank of a training run is made of.

#include "src/run/host/rank_threads.h"
#include "src/run/record/standings.h"
#include "src/run/session/run_files.h"

namespace temper {

/// Its members stand in the order in which they are built, and use those above. A rank without roles has no
/// host, models and journal: it waits for the end.
struct RunRank {
  RunRank(const RunTask& run_task, const MpiSession& mpi, std::span<const RoleRow> rows);

  const Config& config() const { return task.config(); }
  int64_t last_step() const { return task.rollouts_only ? files.resume.step + 1 : task.last_step(); }
  bool trains() const { return links.trains(); }
  bool writes() const { return links.writes(); }
  bool generates() const { return task.plan.generates && !task.replay() && inputs.prompts != nullptr; }
  /// Ranks that only generate may be behind the trainer.
  int64_t first_step() const { return (trains() ? files.resume.step : files.resume.weights) + 1; }
  /// The frozen weights of the model folder; empty: random ones.
  std::string weights_digest() const { return host->weights(config().model.path).digest; }
  /// All ranks with roles, when they have their models.
  void connect_weights();
  /// After a phase: what it used is the next one's.
  void lend_memory();

  const RunTask& task;
  int mpi_rank;
  Stopwatch age;
  Placement placement;
  Trace trace;
  RunLinks links;
  RankThreads threads;  // of this rank; for people those of all
  RunInputs inputs;
  RunFiles files;
  Standings standings;
  std::unique_ptr<ModelHost> host;
  Model* policy = nullptr;  // on ranks that train or generate: what is trained here, or generates
  std::unique_ptr<Journal> journal;
  std::unique_ptr<MemoryLedger> memory;
  std::unique_ptr<ModelPool> models;
  std::vector<std::unique_ptr<Role>> roles;
  InputDigests own_weights;  // of models that roles have of their own, on all ranks

 private:
  void load_policy();
  RoleParts role_parts();
  void build_roles();
  InputDigests own_weights_here() const;
};

}  // namespace temper
