#pragma once
// What a rank of a training run is made of, and where the run goes on from.

#include <map>

#include "src/run/host/model_pool.h"
#include "src/run/record/origins/input_digests.h"
#include "src/run/record/run_folder.h"
#include "src/run/session/placement.h"
#include "src/run/session/run_start.h"

namespace temper {

/// Where a run goes on: trained up to `step`, generated up to `produced`.
struct ResumePoint {
  std::string checkpoint;  // empty: a new run
  int64_t step = 0, produced = 0;
  int64_t weights = 0;  // the version that is generated with first
  std::optional<std::string> unsaid =
      {};  // metrics of the step, which has no line yet: a stop cut its validation
};

/// What a step leaves behind.
struct Saves {
  Saving checkpoint = Saving::none;
  bool exported = false;
};

/// Its members stand in the order in which they are built, and use those above. A rank without roles has no
/// host, models and journal: it waits for the end.
struct RunRank {
  RunRank(const RunTask& run_task, const MpiSession& mpi, std::span<const RoleRow> rows);

  const Config& config() const { return task.config(); }
  int64_t last_step() const { return task.last_step(); }
  bool trains() const { return trainers != nullptr; }
  /// It has state, and takes part in checkpoints.
  bool keeps() const { return keepers != nullptr; }
  bool generates() const { return task.plan.generates && !task.replay() && prompts != nullptr; }
  /// Ranks that only generate may be behind the trainer.
  int64_t first_step() const { return (trains() ? resume.step : resume.weights) + 1; }
  /// The first trainer rank writes what the run leaves.
  bool writes() const { return trainers && trainers->rank() == 0; }
  /// All ranks with roles, when they have their models.
  void connect_weights();
  /// After a phase: what it used is the next one's.
  void lend_memory();

  const RunTask& task;
  int mpi_rank;
  Stopwatch age;
  Placement placement;
  Trace trace;
  std::unique_ptr<Comm> world;
  Device device;        // that this rank computes on
  std::string threads;  // of the ranks, for people
  Meshes meshes;
  Comm* trainers;                       // null on other ranks
  std::unique_ptr<Comm> other_keepers;  // null where only trainer ranks have state
  Comm* keepers;                        // all ranks that have state, the trainer's first; null on others
  std::unique_ptr<Mailbox> mailbox;
  EndOfRun end;
  GroupExchange groups;
  WeightSync weights;
  InputDigests inputs;  // of the whole run, on all ranks
  TextTools text;
  std::unique_ptr<PromptStream> prompts;             // on ranks that draw from the data
  std::unique_ptr<RewardSet> rewards;                // null: the config names none
  std::unique_ptr<RunFolder> folder;                 // on the rank that writes
  std::string checkpoints;                           // folder of the run's own
  RunStart::Finds found = RunStart::Finds::nothing;  // in the folder, on the rank that writes
  ResumePoint resume;
  Stopwatch since_save;     // or the start
  double save_seconds = 0;  // that the last one took
  Saves saves;              // after the step that was trained last, until they are made
  std::unique_ptr<ModelHost> host;
  Model* policy = nullptr;  // on ranks that train or generate: what is trained here, or generates
  std::unique_ptr<Journal> journal;
  std::unique_ptr<MemoryLedger> memory;
  std::unique_ptr<ModelPool> models;
  std::vector<std::unique_ptr<Role>> roles;

 private:
  void load_data();
  InputDigests read_inputs() const;
  void open_folder(int rank);
  void find_start();
  void remember_verdicts();
  void load_policy();
  RoleParts role_parts();
  void build_roles();
};

}  // namespace temper
