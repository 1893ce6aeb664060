#include "src/run/plan/layout/stage_rules.h"

#include <utility>

#include "src/core/check.h"
#include "src/run/plan/layout/legal_numbers.h"

namespace temper {
namespace {

/// Why stages of a role do not have so many parts; empty: they do.
std::string interleaved_defect(const ModelConfig& m, const RoleTraits& role, int64_t pp, int64_t vpp) {
  if (vpp > 1 && pp == 1) return fmt::format("{} parts of a stage need roles.{}.pp > 1", vpp, role.name);
  if (vpp > m.num_layers / pp)
    return fmt::format("{} stages of {} parts for {} layers", pp, vpp, m.num_layers);
  return "";
}

/// What else the config says of stages goes with as many of them.
bool takes_stages(const ModelConfig& m, const RolePlan& role, const RoleSection& c, int64_t pp, int64_t vpp) {
  const size_t chosen = c.stage_layers.size();
  return (chosen == 0 || std::cmp_equal(chosen, pp * vpp)) &&
         interleaved_defect(m, *role.traits, pp, vpp).empty();
}

/// So many parts of each stage.
std::vector<LayerRanges> balanced(const ModelConfig& m, const RolePlan& role, int stages, int parts) {
  const StageWork work = role.traits->trains() ? StageWork::update : StageWork::forward;
  return parts_of_stages(balanced_stages(m, stages * parts, work), stages);
}

class StageRules {
 public:
  StageRules(const RolePlan& trainer, const Config& config, const RunModels& models, Findings& found)
      : trainer_(trainer), config_(config), models_(models), found_(found) {}

  void plan(RolePlan& role) const {
    if (role.ranks.empty()) return;
    const bool leads = role.traits->leads();
    const RoleSection& keys = keys_of(role);
    const int64_t pp = keys.pp.value_or(trainer_.pp());
    if (const std::string why = pipeline_parallel_defect(models_.of(role), role, pp); !why.empty()) {
      if (!keys.pp) return;
      std::vector<int64_t> numbers = numbers_that(std::ssize(role.ranks), [&](int64_t n) {
        return pipeline_parallel_defect(models_.of(role), role, n).empty();
      });
      if (leads)
        keep_fitting(numbers,
                     [&](int64_t n) { return takes_stages(models_.of(role), role, keys, n, *keys.vpp); });
      return found_.error(fmt::format("roles.{}.pp", role.name()), why, as_legal(numbers));
    }
    const bool same = !leads && pp == trainer_.pp() && has_model_of(role, trainer_);
    role.take_stages(same ? trainer_.whole_stages()
                          : balanced(models_.of(role), role, static_cast<int>(pp), /*parts=*/1));
    if (leads)
      plan_interleaved(role);
    else if (role.traits->keys.has(RoleKey::vpp))
      plan_parts_of_follower(role);
  }

 private:
  /// The keys that the config has of a role; those that it lacks are the trainer's.
  const RoleSection& keys_of(const RolePlan& role) const { return config_.roles.of(role.name()); }

  /// Those of roles.trainer.stage_layers, if there are some.
  void choose_stages(RolePlan& role) const {
    const std::vector<int64_t>& chosen = keys_of(role).stage_layers;
    if (chosen.empty()) return;
    const LayerRanges parts = role.parts();
    LayerRanges stages;
    Json balanced = Json::array();
    for (const LayerRange& s : parts) balanced.push_back(s.end - s.begin);
    for (int64_t begin = 0; const int64_t layers : chosen) {
      if (layers < 1 || layers > models_.policy.num_layers - begin) break;
      stages.push_back({begin, begin + layers});
      begin += layers;
    }
    if (stages.size() == chosen.size() && chosen.size() == parts.size() &&
        stages.back().end == models_.policy.num_layers) {
      role.take_stages(parts_of_stages(stages, role.pp()));
      return;
    }
    found_.error(
        fmt::format("roles.{}.stage_layers", role.name()),
        fmt::format("{} numbers, each at least 1, have to add up to the {} layers of the model (as many "
                    "numbers as roles.{}.pp x vpp)",
                    parts.size(), models_.policy.num_layers, role.name()),
        {balanced, Json::array()});
  }

  /// Balanced parts of the stages that a role has; an illegal number is an error.
  template <class Fits>
  bool take_parts(RolePlan& role, int64_t vpp, const Fits& fits) const {
    const auto defect = [&](int64_t n) {
      return interleaved_defect(models_.of(role), *role.traits, role.pp(), n);
    };
    if (const std::string why = defect(vpp); !why.empty()) {
      std::vector<int64_t> numbers =
          numbers_that(models_.policy.num_layers, [&](int64_t n) { return defect(n).empty(); });
      keep_fitting(numbers, fits);
      found_.error(fmt::format("roles.{}.vpp", role.name()), why, as_legal(numbers));
      return false;
    }
    role.take_stages(balanced(models_.of(role), role, role.pp(), static_cast<int>(vpp)));
    return true;
  }

  /// Absent in the config: the trainer's, where both have as many stages.
  void plan_parts_of_follower(RolePlan& role) const {
    const bool same_stages = role.pp() == trainer_.pp() && has_model_of(role, trainer_);
    const int64_t vpp = keys_of(role).vpp.value_or(same_stages ? trainer_.vpp() : 1);
    if (same_stages && vpp == trainer_.vpp())
      role.take_stages(trainer_.stages);
    else if (vpp > 1)
      take_parts(role, vpp, [](int64_t) { return true; });
  }

  /// The parts of the trainer's stages.
  void plan_interleaved(RolePlan& role) const {
    const RoleSection& keys = keys_of(role);
    if (take_parts(role, *keys.vpp,
                   [&](int64_t n) { return takes_stages(models_.of(role), role, keys, role.pp(), n); }))
      choose_stages(role);
  }

  bool has_model_of(const RolePlan& role, const RolePlan& other) const {
    return &models_.of(role) == &models_.of(other);
  }

  const RolePlan& trainer_;
  const Config& config_;
  const RunModels& models_;
  Findings& found_;
};

}  // namespace

std::string pipeline_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t pp) {
  if (pp > m.num_layers) return fmt::format("{} stages for {} layers", pp, m.num_layers);
  if (role.groups_of(Axis::tp | Axis::cp) % pp == 0) return "";
  return fmt::format("{} {} ranks with tp = {}{} do not divide into {} stages", role.ranks.size(),
                     role.name(), role.tp(),
                     role.traits->keys.has(RoleKey::cp) ? fmt::format(" and cp = {}", role.cp()) : "", pp);
}

void plan_stages(RolePlan& role, const RolePlan& trainer, const Config& config, const RunModels& models,
                 Findings& found) {
  StageRules(trainer, config, models, found).plan(role);
}

}  // namespace temper
