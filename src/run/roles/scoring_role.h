#pragma once
// Adds the log-probs of a model that is not trained to the groups that are dealt to this rank, as they come:
// of the first weights (the reference), or of a teacher. Weights that were moved to host memory are on the
// GPU while a step is worked on.

#include "src/run/roles/role.h"
#include "src/train/token_pass.h"

namespace temper {

/// What a role of this kind adds, and what its work is called.
struct ScoredAs {
  const char* field;  // of an annotation
  std::vector<double> Trajectory::*logprobs;
  const char* timing;
  Phase phase;
};

class ScoringRole : public Role {
 public:
  ScoringRole(const RoleParts& parts, const ScoredAs& as);
  bool phase(int64_t step) override { return work_until(p_.lead.limit(step), trains()); }
  void settle(int64_t produced) override { work_until(produced, /*to_cut=*/true); }
  /// Steps of a run that had no such role get their log-probs here.
  void restore(const CheckpointReader& checkpoint) override;

 private:
  /// It waits for no step after one that was cut then.
  bool trains() const { return p_.models.trained() != nullptr; }
  /// All steps up to this one; `to_cut`: or one that a stop cut. False: the run has ended.
  bool work_until(int64_t step, bool to_cut);
  bool add_logprobs(int64_t step);
  std::vector<Group> take_some(int64_t step);
  void annotate(int64_t step, std::span<const Group> groups);
  void close(int64_t step, double seconds);
  /// This rank's portion of a step from a checkpoint. False: it lacks nothing.
  bool complete(int64_t step, StepInput input);

  RoleParts p_;
  const ScoredAs& as_;
  PassOptions pass_;
  Team team_;
  Comm* dp_;  // with shards of weights: those that score the groups of a step together; else null
  Model& model_;
};

std::unique_ptr<Role> make_reference_role(const RoleParts& parts);
std::unique_ptr<Role> make_teacher_role(const RoleParts& parts);

}  // namespace temper
