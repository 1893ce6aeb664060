#include <algorithm>
#include <numeric>

#include "src/comm/rank_set.h"
#include "src/core/check.h"
#include "src/run/plan/layout/legal_numbers.h"
#include "src/run/plan/layout/split_rules.h"
#include "src/run/plan/layout/stage_rules.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

/// The ranks of a role; an illegal set is an error and gives nothing.
std::vector<int> role_ranks(const std::string& key, const std::string& text, int num_ranks, const Json& legal,
                            Findings& found) {
  RankSet set = read_rank_set(text, num_ranks);
  if (!set.defect.empty()) found.error(key, set.defect, {legal});
  return std::move(set.ranks);
}

void require_cover(const std::vector<RolePlan>& roles, int num_ranks, const Config& config, Findings& found) {
  std::vector<int> idle;
  for (int rank = 0; rank < num_ranks; ++rank)
    if (std::ranges::none_of(roles, [&](const RolePlan& role) { return role.has(rank); }))
      idle.push_back(rank);
  if (idle.empty()) return;
  const std::string text =
      fmt::format("{} of {} ranks have no role: {}", idle.size(), num_ranks, rank_set_text(idle));
  if (config.cluster.idle_ranks == "allow") return found.warn(text + " (cluster.idle_ranks = \"allow\")");
  found.error("roles.trainer.ranks", text + "; or set cluster.idle_ranks = \"allow\"",
              {"all", fmt::format("0-{}", num_ranks - 1)});
}

/// Why the experts of a role are not spread over so many ranks; empty: they may be.
std::string expert_parallel_defect(const MoeConfig& m, const RolePlan& role, int64_t ep) {
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

/// Absent in the config: the trainer's, where weights are to stay on the GPU.
void plan_shards_of_follower(RolePlan& role, const RolePlan& lead, const Config& config, bool adapters,
                             Findings& found) {
  const RoleSection& keys = config.roles.of(role.name());
  const bool offloads = keys.offload.value_or(false);
  role.zero = static_cast<int>(keys.zero.value_or(offloads ? 1 : *config.roles.lead().zero));
  if (role.traits->scores() && !role.splits_weights()) role.zero = 1;
  if (adapters && role.shares_base(lead)) role.zero = 1;  // the trainer's weights, whole between updates
  if (role.splits_weights() && offloads)
    found.error(
        fmt::format("roles.{}.offload", role.name()),
        fmt::format("with roles.{}.zero = 3 a rank has a shard of the weights, and not in host memory",
                    role.name()),
        {"auto", false});
}

/// Absent in the config: of a role that scores the trainer's where it fits, else tp as far as it divides
/// the experts.
void plan_expert_parallel(RolePlan& role, const RolePlan& lead, const Config& config, const MoeConfig& m,
                          Findings& found) {
  if (role.ranks.empty()) return;
  const std::optional<int64_t> own = config.roles.of(role.name()).ep;
  const auto defect = [&](int64_t n) { return expert_parallel_defect(m, role, n); };
  int64_t ep = std::gcd(int64_t{role.tp()}, m.num_experts);
  if (role.traits->scores() && defect(lead.ep()).empty()) ep = lead.ep();
  if (own && !defect(*own).empty())
    found.error(fmt::format("roles.{}.ep", role.name()), defect(*own),
                as_legal(numbers_that(std::ssize(role.ranks), [&](int64_t n) { return defect(n).empty(); })));
  else if (own)
    ep = *own;
  if (!m.layers.empty()) role.grid.set(Axis::ep, static_cast<int>(ep));
}

/// The roles that the run needs, with their ranks.
std::vector<RolePlan> plan_ranks(const Config& config, const RunModels& models, int num_ranks,
                                 Findings& found) {
  const RolesConfig& roles = config.roles;
  const std::string& all = *roles.lead().ranks;
  std::vector<RolePlan> needed;
  std::vector<int> trainer;
  for (const RoleTraits& row : roles.rows())
    if (row.leads())
      trainer = role_ranks(fmt::format("roles.{}.ranks", row.name), all, num_ranks, "all", found);
  const Json same = trainer.empty() ? Json("all") : Json(all);
  for (const RoleTraits& row : roles.rows()) {
    if (!row.needed(config)) continue;
    const std::optional<std::string>& own = roles.of(row.name).ranks;
    const bool follows = row.leads() || !own;
    RolePlan& role = needed.emplace_back();
    role.traits = &row;
    role.own_model = roles.of(row.name).path.has_value();
    role.ranks =
        follows ? trainer : role_ranks(fmt::format("roles.{}.ranks", row.name), *own, num_ranks, same, found);
    role.take_stages({{{0, models.of(role).num_layers}}});
  }
  return needed;
}

}  // namespace

std::vector<RolePlan> plan_roles(const Config& config, const RunModels& models, int num_ranks,
                                 Findings& found) {
  std::vector<RolePlan> roles = plan_ranks(config, models, num_ranks, found);
  const RoleSection& keys = config.roles.lead();
  RolePlan& lead = *std::ranges::find_if(roles, [](const RolePlan& role) { return role.traits->leads(); });
  const auto split = [&](RolePlan& role, Axis axis) {
    plan_splits(role, axis, config, models, roles, found);
  };
  split(lead, Axis::tp);
  split(lead, Axis::cp);
  plan_stages(lead, lead, config, models, found);
  plan_expert_parallel(lead, lead, config, models.of(lead).moe, found);
  lead.zero = static_cast<int>(*keys.zero);
  // What is illegal is said once.
  const bool same_tp = lead.tp() == *keys.tp, same_cp = lead.cp() == *keys.cp;
  for (RolePlan& role : roles) {
    if (role.traits->leads()) continue;
    if (config.roles.of(role.name()).tp || same_tp) split(role, Axis::tp);
    if (role.traits->keys.has(RoleKey::cp) && (config.roles.of(role.name()).cp || same_cp))
      split(role, Axis::cp);
    plan_stages(role, lead, config, models, found);
    if (role.traits->keys.has(RoleKey::ep))
      plan_expert_parallel(role, lead, config, models.of(role).moe, found);
    if (role.traits->keys.has(RoleKey::zero))
      plan_shards_of_follower(role, lead, config, models.policy.adapters.on(), found);
  }
  if (lead.zero > 1 && lead.replicas() == 1 && !lead.ranks.empty())
    found.warn(fmt::format("roles.{}.zero = {} has no effect: no two ranks have the same part of the model",
                           lead.name(), lead.zero));
  if (!lead.ranks.empty()) require_cover(roles, num_ranks, config, found);
  return roles;
}

}  // namespace temper
