#include "src/run/plan/report.h"

#include <algorithm>

#include "src/comm/rank_set.h"
#include "src/config/typed/peer_keys.h"
#include "src/core/check.h"
#include "src/run/plan/memory.h"
#include "src/run/plan/memory_choices.h"

namespace temper {
namespace {

std::string line(const std::string& name, const std::string& value, const std::string& formula) {
  return fmt::format("  {:<26} {:<14} {}\n", name, value, formula);
}

std::string line(const std::string& name, int64_t value, const std::string& formula) {
  return line(name, std::to_string(value), formula);
}

std::string batch_text(const RunPlan& plan) {
  const BatchPlan& b = plan.batch;
  std::string text = "batch\n";
  if (plan.generates) {
    text += line("prompts_per_step", b.prompts_per_step, "rollout.prompts_per_step");
    text += line("samples_per_prompt", b.samples_per_prompt, "rollout.samples_per_prompt");
    text += line("samples_per_step", b.samples_per_step,
                 fmt::format("prompts_per_step x samples_per_prompt = {} x {}", b.prompts_per_step,
                             b.samples_per_prompt));
  } else {
    text += line("samples_per_step", b.samples_per_step,
                 fmt::format("samples_per_update x updates_per_step = {} x {}", b.samples_per_update,
                             b.updates_per_step));
  }
  text += line(
      "samples_per_update", b.samples_per_update,
      fmt::format("over all ranks; updates_per_step = {} / {}", b.samples_per_step, b.samples_per_update));
  if (b.last_update_samples < b.samples_per_update)
    text += line("last_update_samples", b.last_update_samples, "train.last_partial = \"keep\"");
  if (b.dropped_samples > 0)
    text += line("dropped_samples", b.dropped_samples, "per step, train.last_partial = \"drop\"");
  text += line("updates_per_step", b.updates_per_step, "optimizer updates of one epoch");
  text += line("epochs_per_step", b.epochs_per_step, "train.epochs_per_step");
  text += line("updates_total", b.updates_total,
               fmt::format("steps x updates_per_step x epochs_per_step = {} x {} x {}", plan.steps,
                           b.updates_per_step, b.epochs_per_step));
  return text;
}

std::string lengths_text(const RunPlan& plan) {
  std::string text = "lengths (tokens)\n";
  text += line("context_tokens", plan.context_tokens, "model.context_tokens");
  text += line("max_prompt_tokens", plan.max_prompt_tokens, "rollout.max_prompt_tokens");
  text += line("max_new_tokens", plan.max_new_tokens, "rollout.max_new_tokens");
  if (plan.steps_of_longest_response > 1)
    text += line("steps of a response", plan.steps_of_longest_response,
                 "at most, by rollout.tokens_per_step; a prompt is trained in the step that finishes it");
  text += line("longest_sequence", plan.longest_sequence, "prompt and response");
  const int cp = plan.trainer().cp();
  text += line(
      "max_tokens_per_microbatch", plan.max_tokens_per_microbatch,
      cp > 1 ? fmt::format("of a rank: {} together pack micro-batches up to {}", cp, plan.microbatch_tokens())
             : "micro-batches are packed up to it; their number does not change the gradient");
  if (const int64_t least = plan.least_of_stages(plan.trainer()); least > 0)
    text += line("of stages, at least", least, "smaller micro-batches, as many as keep stages busy");
  if (plan.kv_pages > 0)
    text += line("kv_pages", plan.kv_pages,
                 fmt::format("per rank, {} tokens each, {} together", plan.kv_page_tokens,
                             gib_text(saturating_multiply(plan.kv_pages, plan.kv_page_bytes))));
  return text;
}

/// One row per role, one column per rank; worlds too wide for a terminal are left out.
std::string rank_map(const RunPlan& plan) {
  constexpr int kWidest = 96;
  if (plan.num_ranks < 2 || plan.num_ranks > kWidest) return "";
  std::string text;
  for (const RolePlan& role : plan.roles) {
    std::string cells;
    for (int rank = 0; rank < plan.num_ranks; ++rank) cells += role.has(rank) ? '#' : '.';
    text += fmt::format("  {:<12}{}\n", role.name(), cells);
  }
  return text;
}

/// Roles with the same stages have one line.
std::string stages_text(const RunPlan& plan) {
  std::string text;
  for (const RolePlan& role : plan.roles) {
    const auto alike = [&](const RolePlan& other) { return other.stages == role.stages; };
    const auto first = std::find_if(plan.roles.begin(), plan.roles.end(), alike);
    if (role.pp() == 1 || &*first != &role) continue;
    std::string names, layers;
    for (const RolePlan& other : plan.roles)
      if (alike(other)) names += (names.empty() ? "" : ", ") + std::string(other.name());
    for (const LayerRange& s : role.parts()) layers += fmt::format(" {}-{}", s.begin, s.end - 1);
    text += line("stages", role.pp(),
                 fmt::format("layers{}, after the embedding and before the head{} ({})", layers,
                             role.vpp() > 1 ? ", of each stage in turn" : "", names));
  }
  return text;
}

/// A line for each of few nodes, one for many.
std::string nodes_text(int num_ranks, int per_node) {
  constexpr int kMany = 8;
  if (per_node <= 0) return "";
  const int nodes = (num_ranks - 1) / per_node + 1;
  if (nodes > kMany)
    return line("nodes", nodes,
                fmt::format("ranks in order, {} on each: node n has ranks {} n to {} n + {}", per_node,
                            per_node, per_node, per_node - 1));
  std::string text;
  for (int node = 0; node < nodes; ++node) {
    const int last = (node + 1 < nodes ? (node + 1) * per_node : num_ranks) - 1;
    text += line(fmt::format("node {}", node), fmt::format("ranks {}-{}", node * per_node, last), "");
  }
  return text;
}

std::string roles_text(const RunPlan& plan, int per_node) {
  std::string text = "roles\n";
  for (const RolePlan& role : plan.roles)
    text +=
        line(std::string(role.name()),
             (role.tp() > 1 ? fmt::format("tp {} ", role.tp()) : "") +
                 (role.cp() > 1 ? fmt::format("cp {} ", role.cp()) : "") +
                 (role.pp() > 1 ? fmt::format("pp {} ", role.pp()) : "") +
                 (role.vpp() > 1 ? fmt::format("vpp {} ", role.vpp()) : "") +
                 fmt::format("dp {}", role.dp()) + (role.zero > 1 ? fmt::format(" zero {}", role.zero) : ""),
             "ranks " + rank_set_text(role.ranks));
  text += stages_text(plan) + rank_map(plan);
  if (plan.generates) {
    text += line("max_policy_lag", plan.max_policy_lag,
                 "step s generates with the weights after step max(0, s - 1 - lag)");
    const std::vector<int> receivers = plan.weight_receivers();
    text += line("weights sent per step", gib_text(plan.weights.bytes),
                 receivers.empty() ? "every rollout rank shares the trainer's buffers"
                                   : fmt::format("rows that ranks {} lack, each from the trainer ranks that "
                                                 "have them; at most {} by one of them",
                                                 rank_set_text(receivers), gib_text(plan.weights.most_sent)));
  }
  return text + nodes_text(plan.num_ranks, per_node);
}

/// Floating-point operations of one step when every sample has full length, attention left out.
struct Work {
  int64_t tokens = 0;
  std::vector<double> of_row;  // of the roles that there are, 0: the run has no such one
};

Work most_work(const RunPlan& plan) {
  Work work;
  work.tokens = saturating_multiply(plan.batch.samples_per_step, plan.longest_sequence);
  const double forward = 2.0 * static_cast<double>(plan.num_parameters) * static_cast<double>(work.tokens);
  for (const RoleTraits& row : plan.rows) {
    const double times = row.trains() ? 3.0 * static_cast<double>(plan.batch.epochs_per_step) : 1.0;
    work.of_row.push_back(plan.role(row.name) ? times * forward : 0);
  }
  return work;
}

std::string work_text(const RunPlan& plan) {
  const Work work = most_work(plan);
  std::string text = "work per step, at most (seconds = this / measured FLOP per second of all ranks)\n";
  text += line("tokens", work.tokens, "samples_per_step x longest_sequence");
  for (size_t i = 0; i < plan.rows.size(); ++i)
    if (work.of_row[i] > 0)
      text += line(
          plan.rows[i].phase, fmt::format("{:.3g} TFLOP", work.of_row[i] / 1e12),
          plan.rows[i].trains() ? "6 x parameters x tokens x epochs_per_step" : "2 x parameters x tokens");
  return text;
}

/// Where ranks hold many different things in a phase, those of the largest row are shown.
std::string memory_text(const RunPlan& plan, const ReportOptions& options) {
  constexpr size_t kMany = 3;
  const bool cpu = plan.device == Device::cpu;
  std::string text = fmt::format("memory per rank ({})\n", cpu ? "host" : "device");
  for (const std::vector<MemoryRow>& rows : rows_by_phase(plan))
    for (const MemoryRow& row : rows) {
      const std::string host = cpu ? "" : gib_text(row.host_bytes) + " of the host; ";
      text += line(row.phase, gib_text(cpu ? row.host_bytes : row.device_bytes),
                   host + "ranks " + rank_set_text(row.ranks));
      if (rows.size() > kMany && &row != &rows.front()) continue;
      for (const auto& [name, bytes] : row.all_parts()) text += line("    " + name, gib_text(bytes), "");
    }
  text += line("optimizer state", fmt::format("{} moments", dtype_name(plan.moments)),
               plan.master == plan.dtype   ? "the weights are the master"
               : plan.master == DType::u16 ? "the master is the weights and 16 bits that they lack"
                                           : fmt::format("a master in {}", dtype_name(plan.master)));
  std::string offloaded = plan.optimizer_in_host ? "optimizer" : "";
  for (const RolePlan& role : plan.roles)
    if (role.in_host) offloaded += (offloaded.empty() ? "" : ", ") + std::string(role.name());
  if (!offloaded.empty())
    text +=
        line("offloaded", offloaded,
             fmt::format("to host memory; about {:.2f} s of a step over PCIe 5 x16", offload_seconds(plan)));
  if (options.memory_limit > 0) text += line("limit", gib_text(options.memory_limit), "of a rank");
  return text;
}

std::string choices_text(const std::vector<MemoryChoice>& choices) {
  std::string text =
      choices.empty() ? "" : "the largest phase with other keys, same token budget (device, host)\n";
  for (const MemoryChoice& c : choices)
    text += line(gib_text(c.device_bytes), gib_text(c.host_bytes),
                 fmt::format("train.recompute.granularity = \"{}\"{}", c.recompute,
                             c.optimizer_in_host ? ", train.offload.optimizer = true" : ""));
  return text;
}

Json choices_json(const std::vector<MemoryChoice>& choices) {
  Json list = Json::array();
  for (const MemoryChoice& c : choices)
    list.push_back({{"recompute", c.recompute},
                    {"offload_optimizer", c.optimizer_in_host},
                    {"device_bytes", c.device_bytes},
                    {"host_bytes", c.host_bytes}});
  return list;
}

const char* what_goes_over(Axis axis, bool trains) {
  switch (axis) {
    case Axis::tp:
      return trains ? "copies of the forward, partial sums of the backward" : "copies of the forward";
    case Axis::cp:
      return "heads of attention and their gradients, between shares of tokens";
    case Axis::dp:
      return "sums of gradients, new weights";
    case Axis::pp:
      return trains ? "activations and gradients between stages" : "activations between stages";
  }
  return "";
}

std::string traffic_text(const std::vector<RoleTraffic>& traffic) {
  std::string text =
      traffic.empty()
          ? ""
          : "sent over the axes per step, by all ranks of a role, when every sample has full length\n";
  for (const RoleTraffic& t : traffic) {
    for (const AxisRow& row : kAxes)
      if (t.bytes[row.axis] > 0)
        text += line(fmt::format("{} {}", t.role->name, row.name), gib_text(t.bytes[row.axis]),
                     what_goes_over(row.axis, t.role->trains()));
  }
  return text;
}

Json traffic_json(const std::vector<RoleTraffic>& traffic) {
  Json roles = Json::object();
  for (const RoleTraffic& t : traffic)
    for (const AxisRow& row : kAxes) roles[t.role->name][row.name] = t.bytes[row.axis];
  return roles;
}

std::string peer_keys_text(const RunPlan& plan) {
  const BatchPlan& b = plan.batch;
  std::string text = "the same numbers under other trainers' names\n";
  for (const PeerKey& row : peer_keys())
    text += fmt::format("  {:<6} {:<52} {:<32} {}\n", row.peer, row.theirs, row.ours.empty() ? "-" : row.ours,
                        row.note);
  const auto world = static_cast<int64_t>(plan.trainer().ranks.size());
  text += fmt::format(
      "  world = ranks of roles.trainer = {}; global batch = samples_per_update = {}; a per-device batch and "
      "an\n"
      "  accumulation count have no key: per_device x accumulation x world = {} need not divide by "
      "anything.\n",
      world, b.samples_per_update, b.samples_per_update);
  if (plan.generates && b.samples_per_prompt > 0)
    text += fmt::format(
        "  verl's ppo_mini_batch_size counts prompts: {} samples / {} per prompt = {:g} prompts\n",
        b.samples_per_update, b.samples_per_prompt,
        static_cast<double>(b.samples_per_update) / static_cast<double>(b.samples_per_prompt));
  return text;
}

Json roles_json(const RunPlan& plan) {
  Json roles = Json::object();
  for (const RolePlan& role : plan.roles) {
    Json layout{{"vpp", role.vpp()}, {"ep", 1}, {"expert_dp", role.dp()}, {"zero", role.zero}};
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

std::string plan_text(const PlanResult& result, const ReportOptions& options) {
  std::string text;
  for (const PlanError& error : result.errors) {
    text += fmt::format("error   {}{}: {}\n", error.key, error.where.empty() ? "" : " (" + error.where + ")",
                        error.message);
    if (!error.legal.empty())
      text += fmt::format("        legal: {} = {}\n", error.key, legal_text(error.legal));
  }
  for (const std::string& warning : result.warnings) text += "warning " + warning + "\n";
  const std::string end = result.errors.empty()
                              ? "ok\n"
                              : fmt::format("{} error(s): this run would not start\n", result.errors.size());
  if (!result.complete) return text + end;
  const RunPlan& plan = result.plan;
  text += fmt::format("{} on {} rank(s), {}, {}, {} steps\n", plan.algorithm, plan.num_ranks,
                      device_name(plan.device), dtype_name(plan.dtype), plan.steps);
  text += batch_text(plan) + lengths_text(plan) + roles_text(plan, options.ranks_per_node) +
          memory_text(plan, options) + choices_text(result.choices) + traffic_text(result.traffic);
  text += work_text(plan);
  if (options.explain_batch) text += peer_keys_text(plan);
  return text + end;
}

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
  json["lengths"] = {{"context_tokens", plan.context_tokens},
                     {"max_prompt_tokens", plan.max_prompt_tokens},
                     {"max_new_tokens", plan.max_new_tokens},
                     {"steps_of_longest_response", plan.steps_of_longest_response},
                     {"longest_sequence", plan.longest_sequence},
                     {"max_tokens_per_microbatch", plan.max_tokens_per_microbatch},
                     {"kv_page_tokens", plan.kv_page_tokens},
                     {"kv_pages", plan.kv_pages}};
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
