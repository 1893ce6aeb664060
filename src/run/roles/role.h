#pragma once
// A role is what a rank does in a step. Roles of one rank run in the order of the list; what they hand to
// each other goes through the exchange. `Services` is what all of them use.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/config/config.h"
#include "src/core/ctx.h"
#include "src/data/tokenizer/tokenizer.h"
#include "src/models/model.h"
#include "src/rollout/engine.h"
#include "src/run/exchange/group_exchange.h"
#include "src/run/exchange/weight_sync.h"
#include "src/run/plan/plan.h"
#include "src/run/record/journal.h"
#include "src/run/record/trace.h"
#include "src/run/roles/prompt_stream.h"
#include "src/run/roles/reward_workers.h"
#include "src/train/trainer.h"

namespace temper {

struct Services {
  const LoadedConfig& loaded;
  const RunPlan& plan;
  Comm* dp;                 // the trainer ranks; null on others
  Collectives* dp_tensors;  // of the same ranks
  Ctx& ctx;
  Journal& journal;
  EndOfRun& end;
  GroupExchange& groups;
  WeightSync& weights;
  Model& model;                // the policy's weights: rollout and trainer of a rank share them
  const Tokenizer* tokenizer;  // null: replay without a tokenizer folder
  PromptStream* prompts;       // null on ranks that draw none
  Trace& trace;
  const Config& config() const { return loaded.config; }
};

/// A rank's share of what is dealt in turn to the ranks of a role.
struct Share {
  int64_t index = 0, count = 1;
  bool has(int64_t item) const { return item % count == index; }
};

/// The steps that a role works ahead of the trainer, each once.
struct Lead {
  int64_t lag = 0, last_step = 0;
  int64_t done = 0;  // steps up to here need no work
  /// The last step to work on while the trainer is at `step`.
  int64_t limit(int64_t step) const { return std::min(step + lag, last_step); }
};

class Role {
 public:
  virtual ~Role() = default;
  /// The part of this role while the trainer is at `step`. False: the run has ended.
  virtual bool phase(int64_t step) = 0;
};

/// Generates the groups of a step and scores them; prompts are dealt to ranks by the rows that they may cost,
/// and sent when all samples are scored. With rollout.tokens_per_step a sample gets so many tokens in a step
/// and goes on in the next one (the last step finishes all); with rollout.dynamic_sampling_rounds a prompt
/// whose samples earn all the same is replaced by the next one.
class RolloutRole : public Role {
 public:
  RolloutRole(Services& services, Engine& engine, Share share, Lead lead);
  bool phase(int64_t step) override;
  /// What a checkpoint held of all ranks; before the first step.
  void set_unfinished(std::vector<Group> groups) { unfinished_ = std::move(groups); }

 private:
  class Step;

  Services& s_;
  Share share_;
  Lead lead_;
  Engine& engine_;
  RewardSet rewards_;
  std::vector<Group> unfinished_;  // of all rollout ranks, by data position
};

/// Takes prompts and responses from the data (algorithm "sft").
class DataRole : public Role {
 public:
  explicit DataRole(Services& services) : s_(services) {}
  bool phase(int64_t step) override;

 private:
  Services& s_;
};

/// Takes the groups of a step from a rollout file.
class ReplayRole : public Role {
 public:
  ReplayRole(Services& services, std::vector<std::string> files) : s_(services), files_(std::move(files)) {}
  bool phase(int64_t step) override;

 private:
  Services& s_;
  std::vector<std::string> files_;
};

/// Adds the log-probs of the first weights to the groups that are dealt to this rank, as they come.
class ReferenceRole : public Role {
 public:
  ReferenceRole(Services& services, const Model& frozen, size_t stage, Lead lead)
      : s_(services), model_(frozen), stage_(stage), lead_(lead) {}
  bool phase(int64_t step) override { return work_until(lead_.limit(step)); }
  /// All steps up to this one. False: the run has ended.
  bool work_until(int64_t step);

 private:
  bool add_logprobs(int64_t step);

  Services& s_;
  const Model& model_;
  size_t stage_;  // of the exchange
  Lead lead_;
};

/// Advantages and optimizer updates.
class TrainRole : public Role {
 public:
  TrainRole(Services& services, bool replay);
  bool phase(int64_t step) override;
  Trainer& trainer() { return trainer_; }
  /// Of the prompts after the steps that were received.
  int64_t data_position() const { return data_position_; }
  /// A rank asked for a stop, as far as this one was told.
  bool stop_requested() const { return stop_requested_; }

 private:
  std::vector<Group> receive(int64_t step);
  void record_rollout(const StepNote& note);
  void add_own_logprobs(std::vector<Group>& groups);
  void add_old_logprobs(std::vector<Group>& groups, int64_t step, bool one_update);
  void record(const std::vector<UpdateStats>& updates);
  [[noreturn]] void stop(int64_t step, const std::string& defect, std::span<const Group> groups);

  Services& s_;
  bool replay_;
  std::unique_ptr<Algorithm> algorithm_;
  PolicyObjective objective_;
  Trainer trainer_;
  int64_t data_position_ = 0;
  bool stop_requested_ = false;
};

EngineOptions engine_options(const Config& config, const RunPlan& plan);
GenerateOptions generate_options(const Services& s);
PassOptions pass_options(const Config& config, const RunPlan& plan);

}  // namespace temper
