#include "src/run/roles/producers.h"
#include "src/run/roles/rollout_role.h"
#include "src/run/roles/scoring_role.h"
#include "src/run/roles/train_role.h"
#include "src/run/roles/validation.h"

namespace temper {
namespace {

std::vector<int> trainer_ranks(const RunTask& task) { return task.plan.trainer().ranks; }
std::vector<int> trainer_ranks_if(const RunTask& task, bool needed) {
  return needed ? trainer_ranks(task) : std::vector<int>{};
}

std::vector<int> rollout_ranks(const RunTask& task) {
  return task.replay() || !task.plan.generator() ? std::vector<int>{} : task.plan.generator()->ranks;
}
std::vector<int> sft_ranks(const RunTask& task) {
  return trainer_ranks_if(task, !task.plan.generates && !task.replay());
}
std::vector<int> replay_ranks(const RunTask& task) { return trainer_ranks_if(task, task.replay()); }
std::vector<int> ranks_of(const RunTask& task, std::string_view name) {
  const RolePlan* role = task.plan.role(name);
  return role ? role->ranks : std::vector<int>{};
}
std::vector<int> reference_ranks(const RunTask& task) { return ranks_of(task, "reference"); }
std::vector<int> teacher_ranks(const RunTask& task) { return ranks_of(task, "teacher"); }
std::vector<int> validation_ranks(const RunTask& task) { return trainer_ranks_if(task, task.validates()); }

constexpr RoleRow kRoles[] = {
    {"rollout", Duty::produces, rollout_ranks, make_rollout_role, "rollout"},
    {"sft", Duty::produces, sft_ranks, make_sft_producer},
    {"replay", Duty::produces, replay_ranks, make_replay_producer},
    {"reference", Duty::annotates, reference_ranks, make_reference_role, "reference"},
    {"teacher", Duty::annotates, teacher_ranks, make_teacher_role, "teacher"},
    {"trainer", Duty::trains, trainer_ranks, make_train_role, "trainer"},
    {"validation", Duty::observes, validation_ranks, make_validation_role, "trainer"},
};

}  // namespace

std::span<const RoleRow> built_in_roles() { return kRoles; }

}  // namespace temper
