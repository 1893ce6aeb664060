#include <algorithm>
#include <numeric>
#include <utility>

#include "src/comm/rank_set.h"
#include "src/core/check.h"
#include "src/run/plan/draft.h"
#include "src/run/plan/layout/head_rules.h"

namespace temper {
namespace {

/// The ranks of a role; an illegal set is an error and gives nothing.
std::vector<int> role_ranks(PlanDraft& d, const std::string& key, const std::string& text,
                            const Json& legal) {
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

bool has_key(const RolePlan& role, RoleKey key) { return role.traits->keys.has(key); }

/// Why a role does not have so many tensor parallel ranks; empty: it may.
std::string tensor_parallel_defect(const PlanDraft& d, const RolePlan& role, int64_t tp) {
  const ModelConfig& m = d.models.of(role);
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

std::string context_parallel_defect(const PlanDraft& d, const RolePlan& role, int64_t cp) {
  const ModelConfig& m = d.models.of(role);
  if (role.groups_of(Axis::tp) % cp != 0)
    return fmt::format("{} {} ranks with tp = {} do not divide into groups of {}", role.ranks.size(),
                       role.name(), role.tp(), cp);
  return cp_heads_defect(m, role.tp(), cp);
}

/// Why a role with these tp and cp cannot have `pp` stages; empty if it can.
std::string pipeline_parallel_defect(const PlanDraft& d, const RolePlan& role, int64_t pp) {
  const ModelConfig& m = d.models.of(role);
  if (pp > m.num_layers) return fmt::format("{} stages for {} layers", pp, m.num_layers);
  if (role.groups_of(Axis::tp | Axis::cp) % pp == 0) return "";
  return fmt::format("{} {} ranks with tp = {}{} do not divide into {} stages", role.ranks.size(),
                     role.name(), role.tp(),
                     has_key(role, RoleKey::cp) ? fmt::format(" and cp = {}", role.cp()) : "", pp);
}

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

/// The legal numbers from 1 to `most`.
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

/// The keys that the config has of a role; those that it lacks are the trainer's.
const RoleSection& keys_of(const PlanDraft& d, const RolePlan& role) {
  return d.config.roles.of(role.name());
}

/// With this tp and cp a role takes what else the config says of it.
bool takes(const PlanDraft& d, RolePlan role, int64_t tp, int64_t cp) {
  if (!tensor_parallel_defect(d, role, tp).empty()) return false;
  role.split(Axis::tp, tp);
  if (has_key(role, RoleKey::cp)) {
    if (!context_parallel_defect(d, role, cp).empty()) return false;
    role.split(Axis::cp, cp);
  }
  const std::optional<int64_t> pp = keys_of(d, role).pp;
  return !pp || pipeline_parallel_defect(d, role, *pp).empty();
}

/// The values of tp that are legal with the other keys as they are.
std::vector<Json> legal_tensor_parallel(const PlanDraft& d, const RolePlan& role) {
  const auto is_legal = [&](const RolePlan& of, int64_t n) {
    return tensor_parallel_defect(d, of, n).empty();
  };
  std::vector<int64_t> numbers =
      numbers_that(std::ssize(role.ranks), [&](int64_t n) { return is_legal(role, n); });
  const auto cp = [&](const RolePlan& of) { return keys_of(d, of).cp.value_or(*d.config.roles.lead().cp); };
  RolePlan with = role;
  if (has_key(role, RoleKey::cp))
    keep_fitting(numbers, [&](int64_t n) {
      with.split(Axis::tp, n);
      return context_parallel_defect(d, with, cp(role)).empty();
    });
  keep_fitting(numbers, [&](int64_t n) { return takes(d, role, n, cp(role)); });
  if (!role.traits->leads()) return as_legal(numbers);
  for (const RolePlan& other : d.result.plan.roles)
    if (!keys_of(d, other).tp && !other.ranks.empty()) {
      keep_fitting(numbers, [&](int64_t n) { return is_legal(other, n); });
      keep_fitting(numbers, [&](int64_t n) { return takes(d, other, n, cp(other)); });
    }
  return as_legal(numbers);
}

/// Absent in the config: the trainer's.
void plan_tensor_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const std::optional<int64_t> own = keys_of(d, role).tp;
  const int64_t tp = own.value_or(*d.config.roles.lead().tp);
  std::string why = tensor_parallel_defect(d, role, tp);
  if (why.empty()) {
    role.split(Axis::tp, tp);
    return;
  }
  if (!own) why += " (as roles.trainer.tp)";
  d.error(fmt::format("roles.{}.tp", role.name()), why, legal_tensor_parallel(d, role));
}

/// The values of cp that are legal with the other keys as they are.
std::vector<Json> legal_context_parallel(const PlanDraft& d, const RolePlan& role) {
  const auto is_legal = [&](const RolePlan& of, int64_t n) {
    return context_parallel_defect(d, of, n).empty();
  };
  std::vector<int64_t> numbers =
      numbers_that(role.groups_of(Axis::tp), [&](int64_t n) { return is_legal(role, n); });
  keep_fitting(numbers, [&](int64_t n) { return takes(d, role, role.tp(), n); });
  if (!role.traits->leads()) return as_legal(numbers);
  for (RolePlan other : d.result.plan.roles)
    if (&keys_of(d, other) != &keys_of(d, role) && has_key(other, RoleKey::cp) && !keys_of(d, other).cp &&
        !other.ranks.empty()) {
      other.split(Axis::tp, keys_of(d, other).tp.value_or(role.tp()));
      keep_fitting(numbers, [&](int64_t n) { return is_legal(other, n); });
      keep_fitting(numbers, [&](int64_t n) { return takes(d, other, other.tp(), n); });
    }
  return as_legal(numbers);
}

/// Absent in the config: the trainer's.
void plan_context_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const std::optional<int64_t> own = keys_of(d, role).cp;
  const int64_t cp = own.value_or(*d.config.roles.lead().cp);
  std::string why = context_parallel_defect(d, role, cp);
  if (why.empty()) {
    role.split(Axis::cp, cp);
    return;
  }
  if (!own) why += " (as roles.trainer.cp)";
  d.error(fmt::format("roles.{}.cp", role.name()), why, legal_context_parallel(d, role));
}

/// Those of roles.trainer.stage_layers, if there are some.
void choose_stages(PlanDraft& d, RolePlan& role) {
  const std::vector<int64_t>& chosen = keys_of(d, role).stage_layers;
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
    role.take_stages(parts_of_stages(stages, role.pp()));
    return;
  }
  d.error(fmt::format("roles.{}.stage_layers", role.name()),
          fmt::format("{} numbers, each at least 1, have to add up to the {} layers of the model (as many "
                      "numbers as roles.{}.pp x vpp)",
                      parts.size(), d.facts.num_layers, role.name()),
          {balanced, Json::array()});
}

/// So many parts of each stage.
std::vector<LayerRanges> balanced(const PlanDraft& d, const RolePlan& role, int stages, int parts) {
  const StageWork work = role.traits->trains() ? StageWork::update : StageWork::forward;
  return parts_of_stages(balanced_stages(d.models.of(role), stages * parts, work), stages);
}

/// Balanced parts of the stages that a role has; an illegal number is an error.
template <class Fits>
bool take_parts(PlanDraft& d, RolePlan& role, int64_t vpp, const Fits& fits) {
  const auto defect = [&](int64_t n) {
    return interleaved_defect(d.models.of(role), *role.traits, role.pp(), n);
  };
  if (const std::string why = defect(vpp); !why.empty()) {
    std::vector<int64_t> numbers =
        numbers_that(d.facts.num_layers, [&](int64_t n) { return defect(n).empty(); });
    keep_fitting(numbers, fits);
    d.error(fmt::format("roles.{}.vpp", role.name()), why, as_legal(numbers));
    return false;
  }
  role.take_stages(balanced(d, role, role.pp(), static_cast<int>(vpp)));
  return true;
}

bool has_model_of(const PlanDraft& d, const RolePlan& role, const RolePlan& other) {
  return &d.models.of(role) == &d.models.of(other);
}

/// Absent in the config: the trainer's, where both have as many stages.
void plan_parts_of_follower(PlanDraft& d, RolePlan& role) {
  const RolePlan& trainer = d.result.plan.trainer();
  const bool same_stages = role.pp() == trainer.pp() && has_model_of(d, role, trainer);
  const int64_t vpp = keys_of(d, role).vpp.value_or(same_stages ? trainer.vpp() : 1);
  if (same_stages && vpp == trainer.vpp())
    role.take_stages(trainer.stages);
  else if (vpp > 1)
    take_parts(d, role, vpp, [](int64_t) { return true; });
}

/// Absent in the config: the trainer's, where weights are to stay on the GPU.
void plan_shards_of_follower(PlanDraft& d, RolePlan& role) {
  const RoleSection& keys = keys_of(d, role);
  const bool offloads = keys.offload.value_or(false);
  role.zero = static_cast<int>(keys.zero.value_or(offloads ? 1 : *d.config.roles.lead().zero));
  if (role.traits->scores() && !role.splits_weights()) role.zero = 1;
  if (d.result.plan.shares_base(role)) role.zero = 1;  // the trainer's weights, whole between updates
  if (role.splits_weights() && offloads)
    d.error(fmt::format("roles.{}.offload", role.name()),
            fmt::format("with roles.{}.zero = 3 a rank has a shard of the weights, and not in host memory",
                        role.name()),
            {"auto", false});
}

/// The parts of the trainer's stages.
void plan_interleaved(PlanDraft& d, RolePlan& role) {
  const RoleSection& keys = keys_of(d, role);
  if (take_parts(d, role, *keys.vpp,
                 [&](int64_t n) { return takes_stages(d.models.of(role), role, keys, role.pp(), n); }))
    choose_stages(d, role);
}

/// Absent in the config: the trainer's, where the ranks divide so. With as many stages the roles have the
/// same ones, those of a rollout in one part.
void plan_pipeline_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const bool leads = role.traits->leads();
  const RolePlan& trainer = d.result.plan.trainer();
  const RoleSection& keys = keys_of(d, role);
  const int64_t pp = keys.pp.value_or(trainer.pp());
  if (const std::string why = pipeline_parallel_defect(d, role, pp); !why.empty()) {
    if (!keys.pp) return;
    std::vector<int64_t> numbers = numbers_that(
        std::ssize(role.ranks), [&](int64_t n) { return pipeline_parallel_defect(d, role, n).empty(); });
    if (leads)
      keep_fitting(numbers,
                   [&](int64_t n) { return takes_stages(d.models.of(role), role, keys, n, *keys.vpp); });
    return d.error(fmt::format("roles.{}.pp", role.name()), why, as_legal(numbers));
  }
  const bool same = !leads && pp == trainer.pp() && has_model_of(d, role, trainer);
  role.take_stages(same ? trainer.whole_stages() : balanced(d, role, static_cast<int>(pp), /*parts=*/1));
  if (leads)
    plan_interleaved(d, role);
  else if (has_key(role, RoleKey::vpp))
    plan_parts_of_follower(d, role);
}

/// Why the experts of a role are not spread over so many ranks; empty: they may be.
std::string expert_parallel_defect(const PlanDraft& d, const RolePlan& role, int64_t ep) {
  const MoeConfig& m = d.models.of(role).moe;
  if (m.layers.empty()) return ep == 1 ? "" : "the model has no experts";
  if (m.num_experts % ep != 0) return fmt::format("{} experts do not divide by {}", m.num_experts, ep);
  if (role.traits->generates() && role.tp() % ep != 0)
    return fmt::format("ranks that attend apart keep all experts: {} does not divide roles.{}.tp = {}", ep,
                       role.name(), role.tp());
  if (role.tp() % ep != 0 && ep % role.tp() != 0)
    return fmt::format("{} neither divides roles.{}.tp = {} nor is a multiple of it", ep, role.name(),
                       role.tp());
  const int ranks = role.grid.size(Axis::tp | Axis::cp | Axis::dp);
  return ranks % ep == 0 ? "" : fmt::format("{} ranks of a stage do not divide into groups of {}", ranks, ep);
}

/// Absent in the config: of a role that scores the trainer's where it fits, else tp as far as it divides the
/// experts.
void plan_expert_parallel(PlanDraft& d, RolePlan& role) {
  if (role.ranks.empty()) return;
  const MoeConfig& m = d.models.of(role).moe;
  const std::optional<int64_t> own = keys_of(d, role).ep;
  const auto defect = [&](int64_t n) { return expert_parallel_defect(d, role, n); };
  int64_t ep = std::gcd(int64_t{role.tp()}, m.num_experts);
  if (const int64_t lead = d.result.plan.trainer().ep(); role.traits->scores() && defect(lead).empty())
    ep = lead;
  if (own && !defect(*own).empty())
    d.error(fmt::format("roles.{}.ep", role.name()), defect(*own),
            as_legal(numbers_that(std::ssize(role.ranks), [&](int64_t n) { return defect(n).empty(); })));
  else if (own)
    ep = *own;
  if (!m.layers.empty()) role.grid.set(Axis::ep, static_cast<int>(ep));
}

/// The roles that the run needs, with their ranks: all ranks that have one.
std::vector<int> plan_ranks(PlanDraft& d) {
  const RolesConfig& roles = d.config.roles;
  RunPlan& plan = d.result.plan;
  const std::string& all = *roles.lead().ranks;
  std::vector<int> used, trainer;
  for (const RoleTraits& row : roles.rows())
    if (row.leads()) trainer = role_ranks(d, fmt::format("roles.{}.ranks", row.name), all, "all");
  const Json same = trainer.empty() ? Json("all") : Json(all);
  for (const RoleTraits& row : roles.rows()) {
    if (!row.needed(d.config)) continue;
    const std::optional<std::string>& own = roles.of(row.name).ranks;
    const bool follows = row.leads() || !own;
    RolePlan& role = plan.roles.emplace_back();
    role.traits = &row;
    role.own_model = roles.of(row.name).path.has_value();
    role.ranks = follows ? trainer : role_ranks(d, fmt::format("roles.{}.ranks", row.name), *own, same);
    role.take_stages({{{0, d.models.of(role).num_layers}}});
    used.insert(used.end(), role.ranks.begin(), role.ranks.end());
  }
  std::sort(used.begin(), used.end());
  return used;
}

}  // namespace

void plan_roles(PlanDraft& d) {
  RunPlan& plan = d.result.plan;
  const std::vector<int> used = plan_ranks(d);
  const RoleSection& keys = d.config.roles.lead();
  RolePlan& lead = *std::ranges::find_if(plan.roles, [](const RolePlan& r) { return r.traits->leads(); });
  plan_tensor_parallel(d, lead);
  plan_context_parallel(d, lead);
  plan_pipeline_parallel(d, lead);
  plan_expert_parallel(d, lead);
  lead.zero = static_cast<int>(*keys.zero);
  // What is illegal is said once.
  const bool same_tp = lead.tp() == *keys.tp, same_cp = lead.cp() == *keys.cp;
  for (RolePlan& role : plan.roles) {
    if (role.traits->leads()) continue;
    if (keys_of(d, role).tp || same_tp) plan_tensor_parallel(d, role);
    if (has_key(role, RoleKey::cp) && (keys_of(d, role).cp || same_cp)) plan_context_parallel(d, role);
    plan_pipeline_parallel(d, role);
    if (has_key(role, RoleKey::ep)) plan_expert_parallel(d, role);
    if (has_key(role, RoleKey::zero)) plan_shards_of_follower(d, role);
  }
  if (lead.zero > 1 && lead.replicas() == 1 && !lead.ranks.empty())
    d.warn(fmt::format("roles.{}.zero = {} has no effect: no two ranks have the same part of the model",
                       lead.name(), lead.zero));
  plan.max_policy_lag = plan.generates ? d.config.run.max_policy_lag : 0;
  if (!lead.ranks.empty()) require_cover(d, used);
}

}  // namespace temper
