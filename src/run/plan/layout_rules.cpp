#include <algorithm>
#include <utility>

#include "src/comm/rank_set.h"
#include "src/run/plan/draft.h"

namespace temper {
namespace {

/// The ranks of a role; an illegal set is an error and gives nothing.
std::vector<int> role_ranks(PlanDraft& d, const char* key, const std::string& text, const Json& legal) {
  RankSet set = read_rank_set(text, d.result.plan.num_ranks);
  if (!set.defect.empty()) d.error(key, set.defect, {legal});
  return std::move(set.ranks);
}

void require_cover(PlanDraft& d, const std::vector<int>& used) {
  const int world = d.result.plan.num_ranks;
  std::vector<int> idle;
  for (int rank = 0; rank < world; ++rank)
    if (!std::binary_search(used.begin(), used.end(), rank)) idle.push_back(rank);
  if (idle.empty()) return;
  const std::string text =
      fmt::format("{} of {} ranks have no role: {}", idle.size(), world, rank_set_text(idle));
  if (d.config.cluster.idle_ranks == "allow") return d.warn(text + " (cluster.idle_ranks = \"allow\")");
  d.error("roles.trainer.ranks", text + "; or set cluster.idle_ranks = \"allow\"",
          {"all", fmt::format("0-{}", world - 1)});
}

/// Legal numbers of tensor parallel ranks, and why others are not.
std::string tensor_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t tp) {
  if (const auto ranks = std::ssize(role.ranks); ranks % tp != 0)
    return fmt::format("{} {} ranks do not divide into groups of {}", ranks, role_name(role.kind), tp);
  const auto cut = [&](const char* what, int64_t n) {
    return n % tp == 0 ? "" : fmt::format("{} {} do not divide by {}", n, what, tp);
  };
  for (const std::string& why : {cut("attention heads", m.num_heads), cut("hidden units", m.hidden_size),
                                 cut("units of the feed-forward layer", m.intermediate_size)})
    if (!why.empty()) return why;
  const int64_t kv = m.num_kv_heads;
  if (kv % tp == 0 || tp % kv == 0) return "";
  return fmt::format("{} heads of keys and values neither divide by {}, nor it by them", kv, tp);
}

std::string context_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t cp) {
  const int64_t groups = std::ssize(role.ranks) / role.tp;
  if (groups % cp != 0)
    return fmt::format("{} {} ranks with tp = {} do not divide into groups of {}", role.ranks.size(),
                       role_name(role.kind), role.tp, cp);
  const AttentionShape heads = attention_shape(m, role.tp);
  if (heads.q_heads % cp != 0)
    return fmt::format("{} attention heads{} do not divide by {}", heads.q_heads,
                       role.tp > 1 ? fmt::format(" of a tp rank ({} / {})", m.num_heads, role.tp) : "", cp);
  if (heads.kv_heads % cp == 0 || cp % heads.kv_heads == 0) return "";
  return fmt::format("{} heads of keys and values of a tp rank neither divide by {}, nor it by them",
                     heads.kv_heads, cp);
}

/// Of a role with these tp and cp.
std::string pipeline_parallel_defect(const ModelConfig& m, const RolePlan& role, int64_t pp) {
  if (pp > m.num_layers) return fmt::format("{} stages for {} layers", pp, m.num_layers);
  if (std::ssize(role.ranks) / role.tp / role.cp % pp == 0) return "";
  return fmt::format("{} {} ranks with tp = {}{} do not divide into {} stages", role.ranks.size(),
                     role_name(role.kind), role.tp,
                     role.kind == RoleKind::rollout ? "" : fmt::format(" and cp = {}", role.cp), pp);
}

/// Of a role with these stages.
std::string interleaved_defect(const ModelConfig& m, RoleKind kind, int64_t pp, int64_t vpp) {
  if (vpp > 1 && pp == 1)
    return fmt::format("{} parts of a stage need roles.{}.pp > 1", vpp, role_name(kind));
  if (vpp > m.num_layers / pp)
    return fmt::format("{} stages of {} parts for {} layers", pp, vpp, m.num_layers);
  return "";
}

/// What else the config says of stages goes with as many of them.
bool takes_stages(const ModelConfig& m, const RoleConfig& c, int64_t pp, int64_t vpp) {
  const size_t chosen = c.stage_layers.size();
  return (chosen == 0 || std::cmp_equal(chosen, pp * vpp)) &&
         interleaved_defect(m, RoleKind::trainer, pp, vpp).empty();
}

/// From 1 to `most`.
template <class IsLegal>
std::vector<int64_t> numbers_that(int64_t most, const IsLegal& is_legal) {
  std::vector<int64_t> numbers;
  for (int64_t n = 1; n <= most; ++n)
    if (is_legal(n)) numbers.push_back(n);
  return numbers;
}

/// Leaves those that `fits` takes. None of them: another key is illegal with each, and said to be.
template <class Fits>
void keep_fitting(std::vector<int64_t>& numbers, const Fits& fits) {
  if (std::any_of(numbers.begin(), numbers.end(), fits))
    std::erase_if(numbers, [&](int64_t n) { return !fits(n); });
}

std::vector<Json> as_legal(const std::vector<int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

std::optional<int64_t> own_tp(const RolesConfig& roles, RoleKind kind) {
  if (kind == RoleKind::trainer) return roles.trainer.tp;
  return kind == RoleKind::rollout ? roles.rollout_tp : roles.reference_tp;
}

std::optional<int64_t> own_pp(const RolesConfig& roles, RoleKind kind) {
  if (kind == RoleKind::trainer) return roles.trainer.pp;
  return kind == RoleKind::rollout ? roles.rollout_pp : roles.reference_pp;
}

/// A rollout has none.
std::optional<int64_t> own_cp(const RolesConfig& roles, RoleKind kind) {
  return kind == RoleKind::trainer ? roles.trainer.cp : roles.reference_cp;
}

/// With this tp and cp a role takes what else the config says of it.
bool takes(const PlanDraft& d, RolePlan role, int64_t tp, int64_t cp) {
  if (!tensor_parallel_defect(d.facts, role, tp).empty()) return false;
  role.tp = static_cast<int>(tp);
  if (role.kind != RoleKind::rollout) {
    if (!context_parallel_defect(d.facts, role, cp).empty()) return false;
    role.cp = static_cast<int>(cp);
  }
  const std::optional<int64_t> pp = own_pp(d.config.roles, role.kind);
  return !pp || pipeline_parallel_defect(d.facts, role, *pp).empty();
}

/// With the other keys as they are.
std::vector<Json> legal_tensor_parallel(const PlanDraft& d, const RolePlan& role) {
  const auto is_legal = [&](const RolePlan& of, int64_t n) {
    return tensor_parallel_defect(d.facts, of, n).empty();
  };
  std::vector<int64_t> numbers =
      numbers_that(std::ssize(role.ranks), [&](int64_t n) { return is_legal(role, n); });
  const RolesConfig& roles = d.config.roles;
  const auto cp = [&](const RolePlan& of) { return own_cp(roles, of.kind).value_or(roles.trainer.cp); };
  RolePlan with = role;
  if (role.kind != RoleKind::rollout)
    keep_fitting(numbers, [&](int64_t n) {
      with.tp = static_cast<int>(n);
      return context_parallel_defect(d.facts, with, cp(role)).empty();
    });
  keep_fitting(numbers, [&](int64_t n) { return takes(d, role, n, cp(role)); });
  if (role.kind != RoleKind::trainer) return as_legal(numbers);
  for (const RolePlan& other : d.result.plan.roles)
    if (!own_tp(roles, other.kind) && !other.ranks.empty()) {
      keep_fitting(numbers, [&](int64_t n) { return is_legal(other, n); });
      keep_fitting(numbers, [&](int64_t n) { return takes(d, other, n, cp(other)); });
    }
  return as_legal(numbers);
}

/// Absent in the config: the trainer's.
void plan_tensor_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const std::optional<int64_t> own = own_tp(d.config.roles, role.kind);
  const int64_t tp = own.value_or(d.config.roles.trainer.tp);
  std::string why = tensor_parallel_defect(d.facts, role, tp);
  if (why.empty()) {
    role.tp = static_cast<int>(tp);
    return;
  }
  if (!own) why += " (as roles.trainer.tp)";
  d.error(fmt::format("roles.{}.tp", role_name(role.kind)), why, legal_tensor_parallel(d, role));
}

/// With the other keys as they are.
std::vector<Json> legal_context_parallel(const PlanDraft& d, const RolePlan& role) {
  const auto is_legal = [&](const RolePlan& of, int64_t n) {
    return context_parallel_defect(d.facts, of, n).empty();
  };
  std::vector<int64_t> numbers =
      numbers_that(std::ssize(role.ranks) / role.tp, [&](int64_t n) { return is_legal(role, n); });
  keep_fitting(numbers, [&](int64_t n) { return takes(d, role, role.tp, n); });
  if (role.kind != RoleKind::trainer) return as_legal(numbers);
  for (RolePlan other : d.result.plan.roles)
    if (other.kind == RoleKind::reference && !d.config.roles.reference_cp && !other.ranks.empty()) {
      other.tp = static_cast<int>(own_tp(d.config.roles, other.kind).value_or(role.tp));
      keep_fitting(numbers, [&](int64_t n) { return is_legal(other, n); });
      keep_fitting(numbers, [&](int64_t n) { return takes(d, other, other.tp, n); });
    }
  return as_legal(numbers);
}

/// Absent in the config: the trainer's.
void plan_context_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const std::optional<int64_t> own = own_cp(d.config.roles, role.kind);
  const int64_t cp = own.value_or(d.config.roles.trainer.cp);
  std::string why = context_parallel_defect(d.facts, role, cp);
  if (why.empty()) {
    role.cp = static_cast<int>(cp);
    return;
  }
  if (!own) why += " (as roles.trainer.cp)";
  d.error(fmt::format("roles.{}.cp", role_name(role.kind)), why, legal_context_parallel(d, role));
}

/// Those of roles.trainer.stage_layers, if there are some.
void choose_stages(PlanDraft& d, RolePlan& role) {
  const std::vector<int64_t>& chosen = d.config.roles.trainer.stage_layers;
  if (chosen.empty()) return;
  const LayerRanges parts = role.parts();
  LayerRanges stages;
  Json balanced = Json::array();
  for (const LayerRange& s : parts) balanced.push_back(s.end - s.begin);
  for (int64_t begin = 0; const int64_t layers : chosen) {
    if (layers < 1 || layers > d.facts.num_layers - begin) break;
    stages.push_back({begin, begin + layers});
    begin += layers;
  }
  if (stages.size() == chosen.size() && chosen.size() == parts.size() &&
      stages.back().end == d.facts.num_layers) {
    role.stages = parts_of_stages(stages, role.pp());
    return;
  }
  d.error("roles.trainer.stage_layers",
          fmt::format("{} numbers, each at least 1, have to add up to the {} layers of the model (as many "
                      "numbers as roles.trainer.pp x vpp)",
                      parts.size(), d.facts.num_layers),
          {balanced, Json::array()});
}

/// So many parts of each stage.
std::vector<LayerRanges> balanced(const PlanDraft& d, RoleKind kind, int stages, int parts) {
  const StageWork work = kind == RoleKind::trainer ? StageWork::update : StageWork::forward;
  return parts_of_stages(balanced_stages(d.facts, stages * parts, work), stages);
}

/// Balanced parts of the stages that a role has; an illegal number is an error.
template <class Fits>
bool take_parts(PlanDraft& d, RolePlan& role, int64_t vpp, const Fits& fits) {
  const auto defect = [&](int64_t n) { return interleaved_defect(d.facts, role.kind, role.pp(), n); };
  if (const std::string why = defect(vpp); !why.empty()) {
    std::vector<int64_t> numbers =
        numbers_that(d.facts.num_layers, [&](int64_t n) { return defect(n).empty(); });
    keep_fitting(numbers, fits);
    d.error(fmt::format("roles.{}.vpp", role_name(role.kind)), why, as_legal(numbers));
    return false;
  }
  role.stages = balanced(d, role.kind, role.pp(), static_cast<int>(vpp));
  return true;
}

/// Absent in the config: the trainer's, where both have as many stages.
void plan_parts_of_reference(PlanDraft& d, RolePlan& role) {
  const RolePlan& trainer = d.result.plan.roles.back();
  const bool same_stages = role.pp() == trainer.pp();
  const int64_t vpp = d.config.roles.reference_vpp.value_or(same_stages ? trainer.vpp() : 1);
  if (same_stages && vpp == trainer.vpp())
    role.stages = trainer.stages;
  else if (vpp > 1)
    take_parts(d, role, vpp, [](int64_t) { return true; });
}

/// Absent in the config: the trainer's, where weights are to stay on the GPU.
void plan_shards_of_reference(PlanDraft& d, RolePlan& role) {
  const RolesConfig& roles = d.config.roles;
  const bool offloads = roles.reference_offload.value_or(false);
  role.zero = static_cast<int>(roles.reference_zero.value_or(offloads ? 1 : roles.trainer.zero));
  if (!role.splits_weights()) role.zero = 1;
  if (role.splits_weights() && offloads)
    d.error("roles.reference.offload",
            "with roles.reference.zero = 3 a rank has a shard of the weights, and not in host memory",
            {"auto", false});
}

/// Of the trainer with these stages.
void plan_interleaved(PlanDraft& d, RolePlan& role) {
  const RoleConfig& keys = d.config.roles.trainer;
  if (!take_parts(d, role, keys.vpp, [&](int64_t n) { return takes_stages(d.facts, keys, role.pp(), n); }))
    return;
  choose_stages(d, role);
}

/// Absent in the config: the trainer's, where the ranks divide so. With as many stages the roles have the
/// same ones, those of a rollout in one part.
void plan_pipeline_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const bool trains = role.kind == RoleKind::trainer;
  const RolePlan& trainer = d.result.plan.roles.back();
  const std::optional<int64_t> own = own_pp(d.config.roles, role.kind);
  const int64_t pp = own.value_or(trainer.pp());
  if (const std::string why = pipeline_parallel_defect(d.facts, role, pp); !why.empty()) {
    if (!own) return;
    std::vector<int64_t> numbers = numbers_that(std::ssize(role.ranks), [&](int64_t n) {
      return pipeline_parallel_defect(d.facts, role, n).empty();
    });
    const RoleConfig& keys = d.config.roles.trainer;
    if (trains) keep_fitting(numbers, [&](int64_t n) { return takes_stages(d.facts, keys, n, keys.vpp); });
    return d.error(fmt::format("roles.{}.pp", role_name(role.kind)), why, as_legal(numbers));
  }
  const bool same = !trains && pp == trainer.pp();
  role.stages = same ? trainer.whole_stages() : balanced(d, role.kind, static_cast<int>(pp), /*parts=*/1);
  if (trains) plan_interleaved(d, role);
  if (role.kind == RoleKind::reference) plan_parts_of_reference(d, role);
}

}  // namespace

void plan_roles(PlanDraft& d) {
  const RolesConfig& roles = d.config.roles;
  RunPlan& plan = d.result.plan;
  const std::vector<int> trainer = role_ranks(d, "roles.trainer.ranks", roles.trainer.ranks, "all");
  const Json same = trainer.empty() ? Json("all") : Json(roles.trainer.ranks);
  std::vector<int> used = trainer;
  const auto add = [&](RoleKind kind, const char* key, const std::optional<RoleConfig>& role) {
    const std::vector<int> ranks = role ? role_ranks(d, key, role->ranks, same) : trainer;
    used.insert(used.end(), ranks.begin(), ranks.end());
    plan.roles.push_back({kind, ranks});
  };
  if (plan.generates) add(RoleKind::rollout, "roles.rollout.ranks", roles.rollout);
  if (plan.needs_reference) add(RoleKind::reference, "roles.reference.ranks", roles.reference);
  plan.roles.push_back({RoleKind::trainer, trainer});
  plan_tensor_parallel(d, plan.roles.back());
  plan_context_parallel(d, plan.roles.back());
  for (RolePlan& role : plan.roles) role.stages = {{{0, d.facts.num_layers}}};
  plan_pipeline_parallel(d, plan.roles.back());
  plan.roles.back().zero = static_cast<int>(roles.trainer.zero);
  // What is illegal is said once.
  const bool same_tp = plan.roles.back().tp == roles.trainer.tp,
             same_cp = plan.roles.back().cp == roles.trainer.cp;
  for (RolePlan& role : plan.roles) {
    if (role.kind == RoleKind::trainer) continue;
    if (own_tp(roles, role.kind) || same_tp) plan_tensor_parallel(d, role);
    if (role.kind == RoleKind::reference && (roles.reference_cp || same_cp)) plan_context_parallel(d, role);
    plan_pipeline_parallel(d, role);
    if (role.kind == RoleKind::reference) plan_shards_of_reference(d, role);
  }
  const RolePlan& back = plan.roles.back();
  if (back.zero > 1 && back.replicas() == 1 && !trainer.empty())
    d.warn(fmt::format("roles.trainer.zero = {} has no effect: no two ranks have the same part of the model",
                       back.zero));
  plan.max_policy_lag = plan.generates ? d.config.run.max_policy_lag : 0;
  std::sort(used.begin(), used.end());
  if (!trainer.empty()) require_cover(d, used);
}

}  // namespace temper
