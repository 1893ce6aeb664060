#include "src/run/plan/report/plan_json.h"

#include "src/config/typed/peer_keys.h"
#include "src/core/check.h"
#include "src/run/plan/memory/memory_choices.h"
#include "src/run/plan/report/work.h"

namespace temper {
namespace {

Json choices_json(const std::vector<MemoryChoice>& choices) {
  Json list = Json::array();
  for (const MemoryChoice& c : choices)
    list.push_back({{"recompute", c.recompute},
                    {"offload_optimizer", c.optimizer_in_host},
                    {"device_bytes", c.device_bytes},
                    {"host_bytes", c.host_bytes}});
  return list;
}

Json traffic_json(const std::vector<RoleTraffic>& traffic) {
  Json roles = Json::object();
  for (const RoleTraffic& t : traffic)
    for (const AxisRow& row : kTrafficAxes)
      if (row.axis != Axis::ep || t.bytes[row.axis] > 0) roles[t.role->name][row.name] = t.bytes[row.axis];
  return roles;
}

Json roles_json(const RunPlan& plan) {
  Json roles = Json::object();
  for (const RolePlan& role : plan.roles) {
    const Grid& grid = role.grid;
    Json layout{{"vpp", role.vpp()},
                {"ep", grid.has_experts() ? grid.along(Axis::ep) : 1},
                {"expert_dp", grid.has_experts() ? grid.along(Axis::edp) : role.dp()},
                {"zero", role.zero}};
    for (const AxisRow& row : kAxes) layout[row.name] = role.grid.along(row.axis);
    roles[std::string(role.name())] = {{"ranks", role.ranks}, {"layout", std::move(layout)}};
  }
  return roles;
}

Json row_json(const MemoryRow& row) {
  Json parts = Json::object();
  for (const auto& [name, bytes] : row.all_parts()) parts[name] = bytes;
  return {{"rank", row.ranks.front()},
          {"phase", row.phase},
          {"device_bytes", row.device_bytes},
          {"host_bytes", row.host_bytes},
          {"parts", std::move(parts)}};
}

/// A row for each rank: those of ranks alike are copies.
Json memory_json(const RunPlan& plan) {
  std::vector<Json> alike;
  std::vector<std::vector<size_t>> of_rank(static_cast<size_t>(plan.num_ranks));
  for (const MemoryRow& row : plan.memory) {
    for (const int rank : row.ranks) of_rank[static_cast<size_t>(rank)].push_back(alike.size());
    alike.push_back(row_json(row));
  }
  Json memory = Json::array();
  for (size_t rank = 0; rank < of_rank.size(); ++rank)
    for (const size_t row : of_rank[rank]) {
      memory.push_back(alike[row]);
      memory.back()["rank"] = rank;
    }
  return memory;
}

Json peers_json() {
  Json peers = Json::array();
  for (const PeerKey& row : peer_keys())
    peers.push_back({{"peer", row.peer}, {"theirs", row.theirs}, {"ours", row.ours}, {"note", row.note}});
  return peers;
}

Json batch_json(const BatchPlan& b) {
  return {{"prompts_per_step", b.prompts_per_step}, {"samples_per_prompt", b.samples_per_prompt},
          {"samples_per_step", b.samples_per_step}, {"samples_per_update", b.samples_per_update},
          {"updates_per_step", b.updates_per_step}, {"epochs_per_step", b.epochs_per_step},
          {"updates_total", b.updates_total},       {"last_update_samples", b.last_update_samples},
          {"dropped_samples", b.dropped_samples}};
}

}  // namespace

Json plan_json(const PlanResult& result, const ReportOptions& options) {
  const RunPlan& plan = result.plan;
  Json errors = Json::array();
  for (const PlanError& error : result.errors)
    errors.push_back(
        {{"key", error.key}, {"message", error.message}, {"legal", error.legal}, {"where", error.where}});
  Json json{{"ok", result.errors.empty()},
            {"errors", std::move(errors)},
            {"warnings", result.warnings},
            {"batch", result.complete ? batch_json(plan.batch) : Json::object()},
            {"roles", result.complete ? roles_json(plan) : Json::object()},
            {"memory", Json::array()}};
  if (!result.complete) return json;
  json["num_ranks"] = plan.num_ranks;
  json["algorithm"] = plan.algorithm;
  json["device"] = device_name(plan.device);
  json["dtype"] = dtype_name(plan.dtype);
  json["steps"] = plan.steps;
  json["lengths"] = {{"context_tokens", plan.lengths.context},
                     {"max_prompt_tokens", plan.lengths.max_prompt},
                     {"max_new_tokens", plan.lengths.max_new},
                     {"steps_of_longest_response", plan.lengths.steps_of_longest_response},
                     {"longest_sequence", plan.lengths.longest},
                     {"max_tokens_per_microbatch", plan.max_tokens_per_microbatch},
                     {"kv_page_tokens", plan.cache.page_tokens},
                     {"kv_pages", plan.cache.pages}};
  if (plan.cache.state_bytes > 0)
    json["states"] = {{"sequences", plan.cache.running_sequences}, {"bytes_of_one", plan.cache.state_bytes}};
  const Work work = most_work(plan);
  json["work"] = {{"tokens", work.tokens}};
  for (size_t i = 0; i < plan.rows.size(); ++i)
    json["work"][fmt::format("{}_flop", plan.rows[i].phase)] = work.of_row[i];
  json["traffic"] = traffic_json(result.traffic);
  json["offload"] = {{"optimizer", plan.optimizer_in_host}, {"seconds_per_step", offload_seconds(plan)}};
  for (const RoleTraits& row : plan.rows)
    if (row.keys.has(RoleKey::offload))
      json["offload"][row.name] = plan.role(row.name) && plan.role(row.name)->in_host;
  if (!result.choices.empty()) json["memory_choices"] = choices_json(result.choices);
  if (options.memory_limit > 0) json["memory_limit"] = options.memory_limit;
  if (options.explain_batch) json["peers"] = peers_json();
  json["memory"] = memory_json(plan);  // last: an object that grows copies what it holds
  return json;
}

}  // namespace temper
