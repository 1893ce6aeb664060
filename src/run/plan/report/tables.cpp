#include "src/run/plan/report/tables.h"

#include <algorithm>

#include "src/comm/rank_set.h"
#include "src/config/typed/peer_keys.h"
#include "src/core/check.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/memory/memory_choices.h"
#include "src/run/plan/report/sizes.h"
#include "src/run/plan/report/work.h"

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
  text += line("context_tokens", plan.lengths.context, "model.context_tokens");
  text += line("max_prompt_tokens", plan.lengths.max_prompt, "rollout.max_prompt_tokens");
  text += line("max_new_tokens", plan.lengths.max_new, "rollout.max_new_tokens");
  if (plan.lengths.steps_of_longest_response > 1)
    text += line("steps of a response", plan.lengths.steps_of_longest_response,
                 "at most, by rollout.tokens_per_step; a prompt is trained in the step that finishes it");
  text += line("longest_sequence", plan.lengths.longest, "prompt and response");
  const int cp = plan.trainer().cp();
  text += line(
      "max_tokens_per_microbatch", plan.max_tokens_per_microbatch,
      cp > 1 ? fmt::format("of a rank: {} together pack micro-batches up to {}", cp, plan.microbatch_tokens())
             : "micro-batches are packed up to it; their number does not change the gradient");
  if (const int64_t least = plan.least_of_stages(plan.trainer()); least > 0)
    text += line("of stages, at least", least, "smaller micro-batches, as many as keep stages busy");
  if (plan.cache.pages > 0)
    text += line("kv_pages", plan.cache.pages,
                 fmt::format("per rank, {} tokens each, {} together", plan.cache.page_tokens,
                             gib_text(saturating_multiply(plan.cache.pages, plan.cache.page_bytes))));
  if (plan.cache.state_bytes > 0)
    text += line(
        "states", plan.cache.running_sequences,
        fmt::format("of sequences at once in gated delta nets, per rank, {} bytes each, {} together",
                    plan.cache.state_bytes,
                    gib_text(saturating_multiply(plan.cache.running_sequences, plan.cache.state_bytes))));
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
                 (role.ep() > 1 ? fmt::format("ep {} ", role.ep()) : "") + fmt::format("dp {}", role.dp()) +
                 (role.zero > 1 ? fmt::format(" zero {}", role.zero) : ""),
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

/// Ranks that hold the same in every phase.
struct RankKind {
  std::vector<int> ranks;
  std::vector<MemoryRow> phases;
  int64_t peak(bool device) const {
    int64_t most = 0;
    for (const MemoryRow& row : phases) most = std::max(most, device ? row.device_bytes : row.host_bytes);
    return most;
  }
};

/// The fullest ones first.
std::vector<RankKind> rank_kinds(const RunPlan& plan) {
  std::vector<RankKind> kinds;
  for (const MemoryRow& row : plan.memory) {
    const auto same = [&](const RankKind& kind) { return kind.ranks == row.ranks; };
    auto kind = std::find_if(kinds.begin(), kinds.end(), same);
    if (kind == kinds.end()) kind = kinds.insert(kind, {row.ranks, {}});
    kind->phases.push_back(row);
  }
  const bool device = plan.device == Device::cuda;
  std::stable_sort(kinds.begin(), kinds.end(),
                   [&](const RankKind& a, const RankKind& b) { return a.peak(device) > b.peak(device); });
  return kinds;
}

/// One line of a table with a column for each phase.
template <class BytesOf>
std::string phase_line(const std::string& name, const RankKind& kind, const SizeUnit& unit,
                       const BytesOf& bytes_of) {
  std::string text = fmt::format("  {:<18}", name);
  for (const MemoryRow& row : kind.phases) {
    const int64_t bytes = bytes_of(row);
    text += bytes == 0 ? fmt::format("{:>12}", "-") : fmt::format("{:>12.{}f}", unit.of(bytes), unit.digits);
  }
  return text + "\n";
}

/// What ranks hold, a part a line; of one memory.
std::string parts_text(const RankKind& kind, MemoryParts MemoryRow::*parts, int64_t MemoryRow::*sum,
                       const SizeUnit& unit) {
  std::vector<std::string> names;
  for (const MemoryRow& row : kind.phases)
    for (const auto& [name, bytes] : row.*parts)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::string text;
  for (const std::string& name : names)
    text += phase_line(name, kind, unit,
                       [&](const MemoryRow& row) { return MemoryRow::bytes_of(row.*parts, name); });
  return names.empty() ? ""
                       : text + phase_line("together", kind, unit, [&](const auto& row) { return row.*sum; });
}

std::string kind_text(const RunPlan& plan, const RankKind& kind) {
  const bool gpu = plan.device == Device::cuda;
  const SizeUnit unit = size_unit(kind.peak(gpu));
  const auto header = [&](const char* of) {
    std::string text = fmt::format("{:<20}", fmt::format("{}, {}", of, unit.name));
    for (const MemoryRow& row : kind.phases) text += fmt::format("{:>12}", row.phase);
    return text + "\n";
  };
  std::string text =
      fmt::format("memory of rank{} {}\n", kind.ranks.size() > 1 ? "s" : "", rank_set_text(kind.ranks));
  if (gpu) text += header("GPU") + parts_text(kind, &MemoryRow::device, &MemoryRow::device_bytes, unit);
  return text + header("host") + parts_text(kind, &MemoryRow::host, &MemoryRow::host_bytes, unit);
}

/// The fullest kinds of ranks are shown in parts.
std::string memory_text(const RunPlan& plan, const ReportOptions& options) {
  constexpr size_t kMany = 2;
  const bool gpu = plan.device == Device::cuda;
  const std::vector<RankKind> kinds = rank_kinds(plan);
  std::string text;
  for (size_t i = 0; i < std::min(kMany, kinds.size()); ++i) text += kind_text(plan, kinds[i]);
  if (kinds.size() > kMany) text += "largest phase of the other ranks\n";
  for (size_t i = kMany; i < kinds.size(); ++i)
    text += line("ranks " + rank_set_text(kinds[i].ranks), size_text(kinds[i].peak(gpu)), "");
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
  if (options.memory_limit > 0) text += line("limit", size_text(options.memory_limit), "of a rank");
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
    case Axis::ep:
      return trains ? "tokens to their experts and back, and their gradients"
                    : "tokens to their experts and back";
    case Axis::edp:
      break;  // counted as dp's
  }
  return "";
}

std::string traffic_text(const std::vector<RoleTraffic>& traffic) {
  std::string text =
      traffic.empty()
          ? ""
          : "sent over the axes per step, by all ranks of a role, when every sample has full length\n";
  for (const RoleTraffic& t : traffic) {
    for (const AxisRow& row : kTrafficAxes)
      if (t.bytes[row.axis] > 0)
        text += line(fmt::format("{} {}", t.role->name, row.name), gib_text(t.bytes[row.axis]),
                     what_goes_over(row.axis, t.role->trains()));
  }
  return text;
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

}  // namespace

std::string plan_tables(const PlanResult& result, const ReportOptions& options) {
  const RunPlan& plan = result.plan;
  std::string text;
  if (options.all || options.explain_batch) text += batch_text(plan);
  if (options.all) text += lengths_text(plan) + roles_text(plan, options.ranks_per_node);
  if (options.all || options.memory) text += memory_text(plan, options) + choices_text(result.choices);
  if (options.all) text += traffic_text(result.traffic) + work_text(plan);
  if (options.explain_batch) text += peer_keys_text(plan);
  return text;
}

}  // namespace temper
