#include "src/run/plan/layout/split_rules.h"

#include "src/core/check.h"
#include "src/run/plan/layout/head_rules.h"
#include "src/run/plan/layout/legal_numbers.h"
#include "src/run/plan/layout/stage_rules.h"

namespace temper {
namespace {

/// Why a role does not have so many tensor parallel ranks; empty: it may.
std::string tensor_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t tp) {
  if (const auto ranks = std::ssize(role.ranks); ranks % tp != 0)
    return fmt::format("{} {} ranks do not divide into groups of {}", ranks, role.name(), tp);
  const bool has_dense_layers = std::ssize(m.moe.layers) < m.num_layers;
  const auto cut = [&](const char* what, int64_t n) {
    return n % tp == 0 ? "" : fmt::format("{} {} do not divide by {}", n, what, tp);
  };
  for (const std::string& why :
       {cut("attention heads", m.num_heads), cut("hidden units", m.hidden_size),
        cut("units of the feed-forward layer", has_dense_layers ? m.intermediate_size : 0),
        cut("units of the shared expert", m.moe.shared_size)})
    if (!why.empty()) return why;
  return tp_heads_defect(m, tp);
}

std::string context_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t cp) {
  if (role.groups_of(Axis::tp) % cp != 0)
    return fmt::format("{} {} ranks with tp = {} do not divide into groups of {}", role.ranks.size(),
                       role.name(), role.tp(), cp);
  return cp_heads_defect(m, role.tp(), cp);
}

class SplitRules {
 public:
  SplitRules(const Config& config, const RunModels& models, const std::vector<RolePlan>& roles,
             Findings& found)
      : config_(config), models_(models), roles_(roles), found_(found) {}

  void plan(RolePlan& role, Axis axis) const {
    if (role.ranks.empty()) return;
    const bool of_tp = axis == Axis::tp;
    const auto key = of_tp ? &RoleSection::tp : &RoleSection::cp;
    const char* const name = of_tp ? "tp" : "cp";
    const std::optional<int64_t> own = keys_of(role).*key;
    const int64_t along = own.value_or(*(config_.roles.lead().*key));
    const ModelConfig& m = models_.of(role);
    std::string why =
        of_tp ? tensor_parallel_defect(m, role, along) : context_parallel_defect(m, role, along);
    if (why.empty()) return role.split(axis, along);
    if (!own) why += fmt::format(" (as roles.trainer.{})", name);
    found_.error(fmt::format("roles.{}.{}", role.name(), name), why,
                 of_tp ? legal_tensor_parallel(role) : legal_context_parallel(role));
  }

 private:
  /// The keys that the config has of a role; those that it lacks are the trainer's.
  const RoleSection& keys_of(const RolePlan& role) const { return config_.roles.of(role.name()); }

  /// With this tp and cp a role takes what else the config says of it.
  bool takes(RolePlan role, int64_t tp, int64_t cp) const {
    if (!tensor_parallel_defect(models_.of(role), role, tp).empty()) return false;
    role.split(Axis::tp, tp);
    if (role.traits->keys.has(RoleKey::cp)) {
      if (!context_parallel_defect(models_.of(role), role, cp).empty()) return false;
      role.split(Axis::cp, cp);
    }
    const std::optional<int64_t> pp = keys_of(role).pp;
    return !pp || pipeline_parallel_defect(models_.of(role), role, *pp).empty();
  }

  /// The values of tp that are legal with the other keys as they are.
  std::vector<Json> legal_tensor_parallel(const RolePlan& role) const {
    const auto is_legal = [&](const RolePlan& of, int64_t n) {
      return tensor_parallel_defect(models_.of(of), of, n).empty();
    };
    std::vector<int64_t> numbers =
        numbers_that(std::ssize(role.ranks), [&](int64_t n) { return is_legal(role, n); });
    const auto cp = [&](const RolePlan& of) { return keys_of(of).cp.value_or(*config_.roles.lead().cp); };
    RolePlan with = role;
    if (role.traits->keys.has(RoleKey::cp))
      keep_fitting(numbers, [&](int64_t n) {
        with.split(Axis::tp, n);
        return context_parallel_defect(models_.of(with), with, cp(role)).empty();
      });
    keep_fitting(numbers, [&](int64_t n) { return takes(role, n, cp(role)); });
    if (!role.traits->leads()) return as_legal(numbers);
    for (const RolePlan& other : roles_)
      if (!keys_of(other).tp && !other.ranks.empty()) {
        keep_fitting(numbers, [&](int64_t n) { return is_legal(other, n); });
        keep_fitting(numbers, [&](int64_t n) { return takes(other, n, cp(other)); });
      }
    return as_legal(numbers);
  }

  /// The values of cp that are legal with the other keys as they are.
  std::vector<Json> legal_context_parallel(const RolePlan& role) const {
    const auto is_legal = [&](const RolePlan& of, int64_t n) {
      return context_parallel_defect(models_.of(of), of, n).empty();
    };
    std::vector<int64_t> numbers =
        numbers_that(role.groups_of(Axis::tp), [&](int64_t n) { return is_legal(role, n); });
    keep_fitting(numbers, [&](int64_t n) { return takes(role, role.tp(), n); });
    if (!role.traits->leads()) return as_legal(numbers);
    for (RolePlan other : roles_)
      if (&keys_of(other) != &keys_of(role) && other.traits->keys.has(RoleKey::cp) && !keys_of(other).cp &&
          !other.ranks.empty()) {
        other.split(Axis::tp, keys_of(other).tp.value_or(role.tp()));
        keep_fitting(numbers, [&](int64_t n) { return is_legal(other, n); });
        keep_fitting(numbers, [&](int64_t n) { return takes(other, other.tp(), n); });
      }
    return as_legal(numbers);
  }

  const Config& config_;
  const RunModels& models_;
  const std::vector<RolePlan>& roles_;
  Findings& found_;
};

}  // namespace

void plan_splits(RolePlan& role, Axis axis, const Config& config, const RunModels& models,
                 const std::vector<RolePlan>& roles, Findings& found) {
  SplitRules(config, models, roles, found).plan(role, axis);
}

}  // namespace temper
