#pragma once
// A role is what a rank does in a step. Roles of one rank run in the order of the list; what they hand to
// each other goes through Exchange. `Services` is what all of them use.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/config/config.h"
#include "src/core/ctx.h"
#include "src/data/tokenizer.h"
#include "src/models/model.h"
#include "src/rollout/engine.h"
#include "src/run/exchange.h"
#include "src/run/journal.h"
#include "src/run/plan.h"
#include "src/run/prompt_stream.h"
#include "src/run/reward_workers.h"
#include "src/train/trainer.h"

namespace temper {

struct Services {
  const LoadedConfig& loaded;
  const RunPlan& plan;
  Comm& comm;
  Ctx& ctx;
  Journal& journal;
  Exchange& exchange;
  Model& model;                // the trainable weights: rollout and trainer of a rank share them
  const Tokenizer* tokenizer;  // null: replay without a tokenizer folder
  PromptStream* prompts;       // null in replay
  const Config& config() const { return loaded.config; }
};

class Role {
 public:
  virtual ~Role() = default;
  virtual void phase(int64_t step) = 0;
};

/// Generates the groups of a step and scores them; groups are dealt to ranks in turn.
class RolloutRole : public Role {
 public:
  explicit RolloutRole(Services& services);
  void phase(int64_t step) override;
  const Engine& engine() const { return engine_; }

 private:
  Services& s_;
  Engine engine_;
  RewardSet rewards_;
};

/// Takes prompts and responses from the data (algorithm "sft").
class DataRole : public Role {
 public:
  explicit DataRole(Services& services) : s_(services) {}
  void phase(int64_t step) override;

 private:
  Services& s_;
};

/// Takes the groups of a step from a rollout file.
class ReplayRole : public Role {
 public:
  ReplayRole(Services& services, std::vector<std::string> files) : s_(services), files_(std::move(files)) {}
  void phase(int64_t step) override;

 private:
  Services& s_;
  std::vector<std::string> files_;
};

/// Adds the log-probs of the first weights, which it keeps frozen.
class ReferenceRole : public Role {
 public:
  ReferenceRole(Services& services, std::unique_ptr<Model> frozen)
      : s_(services), model_(std::move(frozen)) {}
  void phase(int64_t step) override;

 private:
  Services& s_;
  std::unique_ptr<Model> model_;
};

/// Advantages and optimizer updates.
class TrainRole : public Role {
 public:
  TrainRole(Services& services, bool replay);
  void phase(int64_t step) override;
  Trainer& trainer() { return trainer_; }

 private:
  std::vector<Group> receive(int64_t step);
  void add_own_logprobs(std::vector<Group>& groups);
  void record(const std::vector<UpdateStats>& updates);
  [[noreturn]] void stop(int64_t step, const std::string& defect, std::span<const Group> groups);

  Services& s_;
  bool replay_;
  std::unique_ptr<Algorithm> algorithm_;
  Trainer trainer_;
};

EngineOptions engine_options(const Config& config, const RunPlan& plan);
GenerateOptions generate_options(const Services& s);
PassOptions pass_options(const Config& config, const RunPlan& plan);

/// A finished prompt with its samples, as a group of the step.
Group make_group(const Prompt& prompt, int64_t data_position, int32_t index, std::vector<Completion> samples,
                 int64_t version);

}  // namespace temper
