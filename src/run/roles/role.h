#pragma once
// A role is what a rank does in a step. Roles of one rank run in the order of their duties; what they hand to
// each other goes through the exchange. The table says which ranks have a role and how it is made: a new one
// is a file and a row.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/comm.h"
#include "src/config/config.h"
#include "src/core/digest/file_digest.h"
#include "src/core/process/progress.h"
#include "src/data/chat_template.h"
#include "src/models/model.h"
#include "src/nn/parallel/pipeline.h"
#include "src/rl/rewards/reward_set.h"
#include "src/rollout/engine.h"
#include "src/run/exchange/group_exchange.h"
#include "src/run/exchange/weight_sync.h"
#include "src/run/groups/prompt_stream.h"
#include "src/run/host/model_pool.h"
#include "src/run/plan/plan.h"
#include "src/run/record/journal.h"
#include "src/run/record/memory_ledger.h"
#include "src/run/record/origins/input_digests.h"
#include "src/run/record/run_checkpoint.h"
#include "src/run/record/trace.h"

namespace temper {

class Role {
 public:
  virtual ~Role() = default;
  /// The part of this role while the trainer is at `step`. False: the run has ended.
  virtual bool phase(int64_t step) = 0;
  /// Every rank of a role that learns beside the trainer, when the trainer has trained the step: its groups,
  /// with what all roles add.
  virtual void learn(int64_t /*step*/, const StepInput&) {}
  /// Before a checkpoint, on ranks with state: works until this step, the last one that is generated; but for
  /// a role that learns, which stays at the trainer's. A stop may have cut one before
  /// (GroupExchange::was_cut): no step follows it, and the rest of it comes after a resume.
  virtual void settle(int64_t /*produced*/) {}
  /// Every rank of a role with state calls it, and trainer ranks for all of theirs. Names of what it says
  /// begin with "roles/" and the role's.
  virtual void save(CheckpointWriter&) const {}
  /// Every rank of the role calls it, before the first step.
  virtual void restore(const CheckpointReader&) {}
};

/// What a training run is asked for.
struct RunTask {
  const LoadedConfig& loaded;
  const RunPlan& plan;
  std::vector<std::string> replay_files = {};  // each the groups of one step; none: the run makes its own
  std::string gradient_folder = {};            // of --dump-gradients; empty: none
  Helpers* helpers = nullptr;                  // null: neither a reward nor log.command asks a program
  /// The limit of a wait for other ranks; absent: cluster.watchdog_seconds.
  std::optional<double> wait_limit_seconds = {};
  /// What the plan has read of model folders, by the key that names one.
  std::map<std::string, std::vector<FileDigest>> model_files = {};
  bool rollouts_only = false;  // one step is generated and scored, nothing is trained

  const Config& config() const { return loaded.config; }
  bool replay() const { return !replay_files.empty(); }
  int64_t last_step() const { return replay() ? static_cast<int64_t>(replay_files.size()) : plan.steps; }
  double wait_limit() const { return wait_limit_seconds.value_or(config().cluster.watchdog_seconds); }
  bool validates() const {
    return (plan.validation.generates || plan.validation.loss) && config().validation.in_run() && !replay() &&
           !rollouts_only;
  }
  int64_t lag() const { return replay() ? 0 : plan.max_policy_lag; }
};

/// What a rank gets of the work that is dealt in turn to the ranks of a role, or to its teams where ranks
/// share its model.
struct Portion {
  int64_t index = 0, count = 1;
  bool has(int64_t item) const { return item % count == index; }
  int64_t of(int64_t items) const { return (items + count - 1 - index) / count; }
};

/// The steps that a role works ahead of the trainer, each once.
struct Lead {
  int64_t lag = 0, last_step = 0;
  int64_t done = 0;  // steps up to here need no work
  /// The last step to work on while the trainer is at `step`.
  int64_t limit(int64_t step) const { return std::min(step + lag, last_step); }
};

/// What a rank offers to the roles that are made on it.
struct RoleParts {
  const RunTask& task;
  const InputDigests& inputs;  // what they held when the run began
  Ctx& ctx;
  ModelPool& models;
  EndOfRun& end;
  GroupExchange& groups;
  WeightSync& weights;
  Journal& journal;
  MemoryLedger& memory;  // a role that holds much beside its model says so here
  Trace& trace;
  const Tokenizer* tokenizer;  // null: replay without a tokenizer folder
  const ChatTemplate* chat;    // null: the folder has none
  PromptStream* prompts;       // null on ranks that draw none
  const RewardSet* rewards;    // null: the config names none
  // What belongs to the role that is made.
  const RolePlan* role = nullptr;  // whose model it works with; null: it has none
  ModelShare model_share = {};     // of that model
  Portion portion = {};            // of its work, among its ranks
  size_t stage = 0;                // of the exchange, where the role annotates
  Lead lead = {};

  Model& model() const { return models.of(*role); }
  Engine& engine() const { return models.engine(*role); }
  /// All ranks of the role whose model it is.
  Comm& all_ranks() const { return model_share.mesh->control(AxisSet::all()); }
};

/// Duties stand in the order of a step on a rank. `observes`: after the training of the step, on trainer
/// ranks.
enum class Duty { produces, annotates, trains, observes };

/// What a role beside the trainer leaves in a checkpoint, wherever it runs.
enum class State {
  none,     // or that of a role whose ranks train
  kept,     // save() is called on all of its ranks
  learned,  // the same, and learn(); such a role annotates, and a step only when it has learned the one
            // before
};

struct RoleRow {
  const char* name;
  Duty duty;
  /// World ranks that have the role, ascending; none: the run does without.
  std::vector<int> (*ranks)(const RunTask&);
  std::unique_ptr<Role> (*make)(const RoleParts&);
  /// The role of the config whose model it works with; null: it has none.
  const char* model_of = nullptr;
  State state = State::none;
};
std::span<const RoleRow> built_in_roles();

}  // namespace temper
