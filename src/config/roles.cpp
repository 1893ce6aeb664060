#include "src/config/roles.h"

#include "src/config/config.h"
#include "src/config/methods.h"

namespace temper {
namespace {

bool samples(const Config& c) { return algorithm_traits(c.algorithm.name).generates; }
bool compares(const Config& c) {
  return algorithm_traits(c.algorithm.name).compares && c.algorithm.kl_coef > 0;
}
bool teaches(const Config& c) {
  return samples(c) && c.roles.of("teacher").path && c.algorithm.teacher_coef > 0;
}
bool always(const Config&) { return true; }

using enum RoleKey;
constexpr RoleTraits kRoles[] = {
    {.name = "rollout",
     .work = RoleWork::generates,
     .of_policy = true,
     .keys = {ranks, tp, pp, ep},
     .phase = "generate",
     .needed = samples,
     .when_needed = ""},
    {.name = "reference",
     .work = RoleWork::scores,
     .of_policy = false,
     .keys = {ranks, tp, cp, pp, vpp, ep, zero, offload},
     .phase = "reference",
     .needed = compares,
     .when_needed = "algorithm.kl_coef is not above 0"},
    {.name = "teacher",
     .work = RoleWork::scores,
     .of_policy = false,
     .keys = {ranks, path, tp, cp, pp, vpp, ep, zero, offload},
     .phase = "teacher",
     .needed = teaches,
     .when_needed = "it needs roles.teacher.path, algorithm.teacher_coef above 0, and rollouts"},
    {.name = "trainer",
     .work = RoleWork::trains,
     .of_policy = true,
     .keys = {ranks, tp, cp, pp, vpp, ep, stage_layers, zero},
     .phase = "train",
     .needed = always,
     .when_needed = ""},
};

}  // namespace

std::span<const RoleTraits> built_in_role_traits() { return kRoles; }

RolesConfig::RolesConfig(std::span<const RoleTraits> rows) : rows_(rows) {
  for (const RoleTraits& row : rows) {
    RoleSection& section = sections_[row.name];
    if (!row.leads()) continue;
    lead_ = row.name;
    section.ranks = "all";
    section.tp = section.cp = section.pp = section.vpp = section.zero = 1;
  }
}

}  // namespace temper
