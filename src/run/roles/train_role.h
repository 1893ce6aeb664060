#pragma once
// Advantages and optimizer updates.

#include "src/run/exchange/shared_weights.h"
#include "src/run/roles/role.h"
#include "src/train/trainer.h"

namespace temper {

class TrainRole : public Role {
 public:
  static constexpr Phase kPhase{40, "train", "training", "samples"};
  explicit TrainRole(const RoleParts& parts);
  bool phase(int64_t step) override;
  /// Waits for the groups of the steps that are generated ahead, up to one that was cut.
  void settle(int64_t produced) override;
  /// Weights, optimizer, the steps ahead, and where the producers are in the data.
  void save(CheckpointWriter& checkpoint) const override;
  void restore(const CheckpointReader& checkpoint) override;

 private:
  const Config& config() const { return p_.task.config(); }
  const RunPlan& plan() const { return p_.task.plan; }
  bool generates() const { return plan().generates; }
  Comm& trainers() const { return p_.all_ranks(); }
  std::vector<Group> receive(int64_t step);
  std::vector<std::vector<double>> score(std::span<const Trajectory* const> all);
  void add_own_logprobs(std::vector<Group>& groups);
  std::vector<UpdateStats> update(std::span<const Group> groups, int64_t step);

  RoleParts p_;
  Model& model_;
  Comm& dp_;
  PassOptions pass_;
  std::unique_ptr<Algorithm> algorithm_;
  PolicyObjective objective_;
  Trainer trainer_;
  std::vector<Group> trained_;       // in the last step, on the first rank
  int64_t step_ = 0, produced_ = 0;  // trained; generated, as of the last `settle`
  int64_t first_own_step_ = 1;       // a checkpoint may hold steps of another device or type
  bool cut_ = false;                 // the step after those is open
  int64_t data_position_ = 0;        // of the prompts after the steps that were received
};

std::unique_ptr<Role> make_train_role(const RoleParts& parts);

}  // namespace temper
