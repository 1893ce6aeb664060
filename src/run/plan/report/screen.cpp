#include "src/run/plan/report/screen.h"

#include <algorithm>
#include <cmath>

#include "src/comm/rank_set.h"
#include "src/core/check.h"
#include "src/core/text/printable.h"
#include "src/core/text/short_number.h"
#include "src/models/parameter_specs.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/report/sizes.h"
#include "src/run/plan/report/text_lines.h"
#include "src/run/plan/report/work.h"

namespace temper {
namespace {

std::string line(const char* name, const std::string& text) { return fmt::format("  {:<9}{}\n", name, text); }

const char* memory_name(const RunPlan& plan) {
  return plan.device == Device::cuda ? "GPU memory" : "host memory";
}

int64_t bytes_of(const MemoryRow& row, bool gpu) { return gpu ? row.device_bytes : row.host_bytes; }

/// The largest phase of the fullest rank.
const MemoryRow& fullest(const RunPlan& plan, bool gpu) {
  return *std::max_element(
      plan.memory.begin(), plan.memory.end(),
      [&](const MemoryRow& a, const MemoryRow& b) { return bytes_of(a, gpu) < bytes_of(b, gpu); });
}

/// What a rank has of the memory that it computes in; 0: not known.
int64_t limit_of(const RunPlan& plan, const MemoryLimits& limits) {
  const int64_t device = limits.device.bytes, host = limits.host.bytes;
  if (plan.device == Device::cuda || host == 0) return device;
  return device == 0 ? host : std::min(device, host);
}

/// "139.4 of 139.7 GiB", "85.5 MiB of 23.5 GiB".
std::string of_text(int64_t bytes, int64_t limit) {
  const std::string part = size_text(bytes), all = size_text(limit);
  const std::string unit = all.substr(all.find(' '));
  return (part.ends_with(unit) ? part.substr(0, part.size() - unit.size()) : part) + " of " + all;
}

std::string too_much_text(const MemoryRow& row, bool gpu, int64_t limit) {
  return fmt::format("does not fit: {} needs {} of {} memory on rank {}, which has {}", row.phase,
                     size_text(bytes_of(row, gpu)), gpu ? "GPU" : "host", row.ranks.front(),
                     size_text(limit));
}

std::string verdict(const PlanResult& result, const CheckFacts& facts) {
  const RunPlan& plan = result.plan;
  const std::string errors = count_text(std::ssize(result.errors), "error");
  if (plan.memory.empty()) return fmt::format("would not start: {}", errors);
  const bool gpu = plan.device == Device::cuda;
  const MemoryRow &row = fullest(plan, gpu), &in_host = fullest(plan, false);
  const int64_t limit = limit_of(plan, facts.limits), bytes = bytes_of(row, gpu);
  if (limit > 0 && bytes > limit) return too_much_text(row, gpu, limit);
  if (facts.limits.host.bytes > 0 && in_host.host_bytes > facts.limits.host.bytes)
    return too_much_text(in_host, false, facts.limits.host.bytes);
  const std::string phase = fmt::format("in its largest phase, {}", row.phase);
  const std::string hint = !gpu && bytes <= facts.host_here
                               ? fmt::format("this machine has {} for each rank", size_text(facts.host_here))
                               : "--device-memory would say if it fits";
  const std::string needs =
      limit > 0 ? fmt::format("{} of {} {}", of_text(bytes, limit), memory_name(plan), phase)
                : fmt::format("{} of {} {}; {}", size_text(bytes), memory_name(plan), phase, hint);
  if (!result.errors.empty())
    return fmt::format("would not start: {} (the fullest rank takes {})", errors, needs);
  return fmt::format("{}: the fullest rank takes {}", limit > 0 ? "fits" : "ok", needs);
}

/// The keys of what is not here, each once.
std::string absent_text(const CheckFacts& facts) {
  std::vector<std::string> keys;
  for (const PlanError& input : facts.absent)
    if (std::find(keys.begin(), keys.end(), input.key) == keys.end()) keys.push_back(input.key);
  std::string text;
  for (const std::string& key : keys) {
    text += (text.empty() ? "" : ", ") + key;
    if (key == "model.path") text += fmt::format(" (planned from {})", facts.published);
  }
  return text.empty() ? "" : fmt::format("not here, so not looked at: {}\n", text);
}

std::string epochs_text(double epochs) {
  return epochs < 100 ? fmt::format("{:.{}f}", epochs, epochs < 10 ? 2 : 1)
                      : grouped_number(std::llround(epochs));
}

std::string run_text(const RunPlan& plan, const Json& data) {
  const BatchPlan& b = plan.batch;
  const int64_t updates = b.updates_per_step * b.epochs_per_step;
  const std::string what = plan.generates ? fmt::format("{} x {}", count_text(b.prompts_per_step, "prompt"),
                                                        count_text(b.samples_per_prompt, "sample"))
                                          : count_text(b.samples_per_step, "line");
  std::string text = fmt::format("{}, {}, each {} and {}", plan.algorithm, count_text(plan.steps, "step"),
                                 what, count_text(updates, "update"));
  if (!data.is_null()) text += fmt::format("; {} epochs in all", epochs_text(epochs_of(plan, data)));
  return text;
}

/// A session may have several samples (forks): where it matters which of them are counted.
std::string sessions_text(const BatchPlan& b) {
  return fmt::format("batch sizes count sessions, {} a step and {} an update, however many samples one has",
                     grouped_number(b.samples_per_step), grouped_number(b.samples_per_update));
}

std::string tokens_text(const RunPlan& plan) {
  const bool apart = plan.lengths.longest == plan.lengths.max_prompt + plan.lengths.max_new;
  const std::string lengths =
      apart ? fmt::format("prompts of {} and responses of {}", grouped_number(plan.lengths.max_prompt),
                          grouped_number(plan.lengths.max_new))
            : fmt::format("prompts with responses of {}", grouped_number(plan.lengths.longest));
  return fmt::format("at most {} a step: {}; micro-batches of {}{}", grouped_number(most_work(plan).tokens),
                     lengths, grouped_number(plan.max_tokens_per_microbatch),
                     plan.trainer().cp() > 1 ? " a rank" : "");
}

std::string time_line(const RunPlan& plan, const StepTime& time) {
  return line("time", fmt::format("about {} a step, {} in all ({})", time_text(time.seconds),
                                  time_text(time.seconds * static_cast<double>(plan.steps)), time.from));
}

std::string layout_text(const RolePlan& role) {
  std::string text;
  const auto add = [&](const char* name, int64_t value) {
    if (value > 1) text += fmt::format(" {} {}", name, value);
  };
  add("tp", role.tp()), add("cp", role.cp()), add("pp", role.pp()), add("vpp", role.vpp());
  add("ep", role.ep()), add("dp", role.dp()), add("zero", role.zero);
  return text;
}

/// Roles of one kind together: "rollout, trainer tp 2 dp 4".
std::string ranks_text(const RunPlan& plan, int per_node) {
  std::vector<std::string> roles;
  std::string last;
  const bool together = std::all_of(plan.roles.begin(), plan.roles.end(), [&](const RolePlan& role) {
    return role.ranks == plan.roles.front().ranks;
  });
  for (const RolePlan& role : plan.roles) {
    const std::string kind = layout_text(role) + (together ? "" : " on " + rank_set_text(role.ranks));
    if (!roles.empty() && kind == last)
      roles.back() =
          fmt::format("{}, {}", roles.back().substr(0, roles.back().size() - kind.size()), role.name()) +
          kind;
    else
      roles.push_back(std::string(role.name()) + kind);
    last = kind;
  }
  std::string text = count_text(plan.num_ranks, plan.device == Device::cuda ? "GPU" : "rank");
  if (per_node > 0 && per_node < plan.num_ranks)
    text += fmt::format(" on {} nodes", (plan.num_ranks - 1) / per_node + 1);
  for (size_t i = 0; i < roles.size(); ++i) text += (i == 0 ? ": " : "; ") + roles[i];
  if (plan.max_policy_lag > 0) text += fmt::format("; {} ahead", count_text(plan.max_policy_lag, "step"));
  return text;
}

/// The most of any rank in each phase.
std::string phases_text(const RunPlan& plan) {
  const bool gpu = plan.device == Device::cuda;
  const SizeUnit unit = size_unit(bytes_of(fullest(plan, gpu), gpu));
  std::string text;
  for (const std::vector<MemoryRow>& rows : rows_by_phase(plan)) {
    int64_t most = 0;
    for (const MemoryRow& row : rows) most = std::max(most, bytes_of(row, gpu));
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", rows.front().phase, unit.of(most));
  }
  text += fmt::format(" {}", unit.name);
  const SizeUnit host = size_unit(std::max(host_peak_bytes(plan), int64_t{1} << 30));
  if (gpu)
    text += fmt::format(" of the GPU; {:.1f} {} of the host", host.of(host_peak_bytes(plan)), host.name);
  std::string offloaded = plan.optimizer_in_host ? "the optimizer's state" : "";
  for (const RolePlan& role : plan.roles)
    if (role.in_host) offloaded += (offloaded.empty() ? "" : " and ") + std::string(role.name());
  return offloaded.empty() ? text : text + " with " + offloaded;
}

/// What is trained beside the model; empty: nothing, but the model itself.
std::string adapters_text(const ModelConfig& m) {
  if (!m.adapters.on()) return "";
  int64_t trained = 0;
  for (const ParamSpec& spec : parameter_specs(m))
    if (spec.trained) trained += spec.size();
  return fmt::format(", with adapters of rank {}: {} parameters are trained", m.adapters.rank,
                     large_text(trained));
}

std::string model_text(const RunPlan& plan, const CheckFacts& facts) {
  const ModelConfig& m = *facts.model;
  const bool random = facts.config.model.init == "random";
  const std::string losses =
      plan.aux_losses.empty() ? "" : "; auxiliary losses of its routers: " + plan.aux_losses;
  return fmt::format("{}: {}, {} parameters, {} layers, {} ids, {}{}{}{}", facts.config.model.path, m.family,
                     large_text(plan.num_parameters), m.num_layers, grouped_number(m.vocab_size),
                     dtype_name(plan.dtype), random ? ", random weights" : "", adapters_text(m), losses);
}

std::string data_text(const CheckFacts& facts) {
  const Json &data = facts.data, &lengths = data.at("lengths");
  const std::vector<DataSource>& files = facts.config.data.train;
  const auto number = [](const Json& value) { return grouped_number(value.get<int64_t>()); };
  std::string text = files.front().path;
  if (files.size() > 1) text += fmt::format(" and {} more", files.size() - 1);
  text += fmt::format(": {}{} lines, prompts of {} tokens (95 % up to {}, longest {})",
                      data.at("rows_are") == "counted" ? "" : "about ", number(data.at("rows")),
                      number(lengths.at("p50")), number(lengths.at("p95")), number(lengths.at("max")));
  const int64_t overlong = data.at("overlong"), looked_at = data.at("looked_at");
  if (overlong > 0)
    text += fmt::format("; {} of {} too long: {}", grouped_number(overlong), grouped_number(looked_at),
                        data.at("overlong_rule") == "drop" ? "left out" : "cut at the left");
  return text;
}

/// What rewards can say of the answers.
std::string rewards_text(const CheckFacts& facts) {
  std::string text;
  for (const RewardFunctionConfig& function : facts.config.reward.functions)
    text += (text.empty() ? "" : ", ") + function.name;
  if (!facts.trial.is_null() && !facts.trial.at("reward").is_null())
    return fmt::format("{}: {:.4g} for the first answer as a response, after {}", text,
                       facts.trial.at("reward").get<double>(), time_text(facts.trial.at("seconds")));
  const Json& answers = facts.data.at("answers");
  const int64_t looked_at = answers.at("looked_at");
  const int64_t lost = answers.at("unmatched").get<int64_t>() + answers.at("unreadable").get<int64_t>();
  return fmt::format("{}; {} {} answers{} can be matched", text,
                     lost == 0 ? "all" : grouped_number(looked_at - lost) + " of", grouped_number(looked_at),
                     looked_at == facts.data.at("rows") ? "" : " that were looked at");
}

/// Beginning and end of an answer, whose number may be in the last line.
std::string shown_answer_of(const std::string& answer) {
  constexpr size_t kBegin = 12, kEnd = 36;
  const std::string shown = dump_json_line(answer);
  return cut_middle(shown, kBegin, kEnd);
}

/// Lines of a text from outside, behind a mark.
std::string quoted(const Json& text, char mark, size_t first, size_t last) {
  constexpr size_t kWidth = 96;
  std::string lines;
  for (const std::string& row : excerpt(printable(text.get<std::string>()), kWidth, first, last))
    lines += fmt::format("  {} {}\n", mark, row);
  return lines;
}

/// A prompt as the model sees it: its end says how it is asked to begin.
std::string prompt_text(const Json& data) {
  const Json& first = data.at("first_prompt");
  const bool responds = first.contains("response");
  std::string text = fmt::format("\nfirst prompt ({}), {}", first.at("where").get<std::string>(),
                                 count_text(std::ssize(first.at("ids")), "token"));
  if (responds)
    text +=
        fmt::format("; behind > its response, {}", count_text(std::ssize(first.at("response_ids")), "token"));
  const std::string answer = first.at("answer");
  if (!responds && !answer.empty()) text += "; answer " + shown_answer_of(answer);
  text += "\n" + quoted(first.at("text"), '|', 3, 2);
  return responds ? text + quoted(first.at("response"), '>', 1, 1) : text;
}

}  // namespace

double epochs_of(const RunPlan& plan, const Json& data) {
  const auto number = [&](const char* key) { return data.at(key).get<double>(); };
  const bool drops = data.at("overlong_rule") == "drop";
  const double usable = number("rows") * (1 - (drops ? number("overlong") / number("looked_at") : 0));
  const BatchPlan& b = plan.batch;
  const auto drawn = static_cast<double>(plan.generates ? b.prompts_per_step : b.samples_per_step);
  return drawn * static_cast<double>(plan.steps) / std::max(usable, 1.0);
}

std::string screen_text(const PlanResult& result, const CheckFacts& facts, bool hints) {
  const RunPlan& plan = result.plan;
  std::string text = verdict(result, facts) + "\n" + absent_text(facts);
  if (!plan.memory.empty()) {
    text += line("run", run_text(plan, facts.data));
    if (!facts.config.rollout.harness.empty()) text += line("sessions", sessions_text(plan.batch));
    text += line("tokens", tokens_text(plan));
    if (facts.time) text += time_line(plan, *facts.time);
    text += line("ranks", ranks_text(plan, facts.ranks_per_node)) + line("memory", phases_text(plan));
    if (facts.model) text += line("model", model_text(plan, facts));
    if (!facts.data.is_null()) text += line("data", data_text(facts));
    if (facts.data.contains("answers")) text += line("rewards", rewards_text(facts));
    if (!facts.data.is_null()) text += prompt_text(facts.data);
  }
  if (!result.warnings.empty()) text += "\n";
  for (const std::string& warning : result.warnings) text += "warning: " + warning + "\n";
  if (hints && !plan.memory.empty())
    text += fmt::format("\nmore: --memory (what each phase holds), --all (every number{}), --json\n",
                        facts.absent.empty() ? "" : ", how to get what is not here");
  return text;
}

}  // namespace temper
