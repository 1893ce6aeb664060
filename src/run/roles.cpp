#include <algorithm>
#include <chrono>

#include "src/rl/registry.h"
#include "src/rl/rollout_metrics.h"
#include "src/rl/trajectory_json.h"
#include "src/run/role.h"
#include "src/run/sampling_options.h"
#include "src/run/stop_signal.h"

namespace temper {
namespace {

constexpr int kRewardThreads = 2;

std::map<std::string, double> counter_metrics(const RolloutCounters& c) {
  return {{"rollout/preemptions", static_cast<double>(c.preemptions)},
          {"rollout/rows_prefilled", static_cast<double>(c.rows_prefilled)},
          {"rollout/rows_shared", static_cast<double>(c.rows_shared)},
          {"rollout/rows_generated", static_cast<double>(c.rows_generated)},
          {"rollout/rows_recomputed", static_cast<double>(c.rows_recomputed)}};
}

int64_t num_tokens(const Group& group) {
  int64_t tokens = 0;
  for (const Trajectory& t : group.samples)
    tokens += static_cast<int64_t>(t.prompt_tokens.size() + t.response_tokens.size());
  return tokens;
}

}  // namespace

EngineOptions engine_options(const Config& config, const RunPlan& plan) {
  return {.scheduler = {config.rollout.max_running_sequences, config.rollout.prefill_chunk_tokens},
          .page_tokens = plan.kv_page_tokens,
          .num_pages = plan.kv_pages};
}

PassOptions pass_options(const Config& config, const RunPlan& plan) {
  return {.temperature = config.rollout.temperature,
          .token_budget = plan.max_tokens_per_microbatch,
          .cost = {config.train.cost_linear, config.train.cost_quadratic}};
}

GenerateOptions generate_options(const Services& s) {
  return sampling_options(s.config().rollout, s.model.config(), *s.tokenizer, s.config().run.seed,
                          s.plan.max_new_tokens);
}

Group make_group(const Prompt& prompt, int64_t data_position, int32_t index, std::vector<Completion> samples,
                 int64_t version) {
  Group group;
  for (Completion& c : samples) {
    Trajectory& t = group.samples.emplace_back();
    t.data_position = data_position;
    t.group = index;
    t.sample = static_cast<int32_t>(group.samples.size()) - 1;
    t.prompt_tokens = prompt.tokens;
    t.response_mask.assign(c.tokens.size(), 1);
    t.policy_versions = {{version, static_cast<int32_t>(c.tokens.size())}};
    t.response_tokens = std::move(c.tokens);
    t.logprobs = std::move(c.logprobs);
    t.finish_reason = c.finish_reason;
    t.prompt = prompt.text;
    t.response = std::move(c.text);
    t.answer = prompt.answer;
  }
  return group;
}

RolloutRole::RolloutRole(Services& services, Engine& engine, Share share, Lead lead)
    : s_(services), share_(share), lead_(lead), engine_(engine), rewards_(services.config().reward) {}

bool RolloutRole::phase(int64_t step) {
  const int64_t version = step - 1;
  {
    const TraceSpan span(s_.trace, step, "rollout", fmt::format("get weights {}", version));
    if (!s_.exchange.receive_weights(s_.model.parameters(), version)) return false;
    if (!s_.dp)
      s_.trace.arrow(version, "rollout", weights_arrow(version, s_.trace.rank()), Trace::Arrow::ends);
  }
  while (lead_.done < lead_.limit(step)) produce(++lead_.done, version);
  return true;
}

void RolloutRole::produce(int64_t step, int64_t version) {
  const TraceSpan span(s_.trace, step, "rollout",
                       fmt::format("generate step {} with weights {}", step, version));
  const std::vector<DrawnPrompt> prompts = s_.prompts->next(s_.plan.batch.prompts_per_step);
  std::vector<Request> requests;
  std::vector<size_t> which;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (!share_.has(static_cast<int64_t>(i))) continue;
    requests.push_back({prompts[i].position, prompts[i].prompt.tokens,
                        static_cast<int32_t>(s_.plan.batch.samples_per_prompt)});
    which.push_back(i);
  }
  RewardWorkers workers(rewards_, kRewardThreads);
  const auto send = [&](std::vector<Group> groups) {
    for (Group& g : groups) s_.exchange.send_sampled(step, std::move(g));
  };
  size_t finished = 0;
  const Stopwatch generating;
  const RolloutCounters counters = engine_.generate(
      s_.ctx, requests, generate_options(s_), s_.tokenizer, [&](size_t i, std::vector<Completion> samples) {
        const DrawnPrompt& p = prompts[which[i]];
        workers.submit(
            make_group(p.prompt, p.position, static_cast<int32_t>(which[i]), std::move(samples), version),
            p.record);
        send(workers.take_finished());
        s_.journal.status(fmt::format("step {}: generating, {}/{} prompts of this rank", step, ++finished,
                                      requests.size()));
      });
  StepNote note{.sums = counter_metrics(counters),
                .maxima = {{"timing_s/gen", generating.seconds()}},
                .data_position = s_.prompts->position(),
                .stop_requested = stop_requested()};
  const Stopwatch waiting;
  send(workers.collect());
  note.maxima["timing_s/reward"] = waiting.seconds();
  s_.exchange.close_sampled(step, note);
  s_.trace.arrow(step, "rollout", groups_arrow(step, s_.trace.rank()), Trace::Arrow::begins);
}

bool DataRole::phase(int64_t step) {
  const std::vector<DrawnPrompt> lines = s_.prompts->next(s_.plan.batch.prompts_per_step);
  const Share share{s_.dp->rank(), s_.dp->size()};
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!share.has(static_cast<int64_t>(i))) continue;
    Completion response{lines[i].prompt.response_tokens, {}, lines[i].prompt.response, FinishReason::stop};
    s_.exchange.send_sampled(step, make_group(lines[i].prompt, lines[i].position, static_cast<int32_t>(i),
                                              {std::move(response)}, step - 1));
  }
  s_.exchange.close_sampled(step, {.sums = {}, .maxima = {}, .data_position = s_.prompts->position()});
  return true;
}

bool ReplayRole::phase(int64_t step) {
  std::vector<Group> groups = read_rollouts(files_[static_cast<size_t>(step - 1)],
                                            {s_.model.config().vocab_size, s_.model.context_tokens()});
  const Share share{s_.dp->rank(), s_.dp->size()};
  for (size_t i = 0; i < groups.size(); ++i)
    if (share.has(static_cast<int64_t>(i))) s_.exchange.send_sampled(step, std::move(groups[i]));
  s_.exchange.close_sampled(step,
                            {.sums = {}, .maxima = {{"replay/groups", static_cast<double>(groups.size())}}});
  return true;
}

bool ReferenceRole::work_until(int64_t step) {
  while (lead_.done < step)
    if (!add_logprobs(++lead_.done)) return false;
  return true;
}

/// Groups that have come are scored together, up to a micro-batch: which ones changes no bit of a log-prob.
bool ReferenceRole::add_logprobs(int64_t step) {
  const PassOptions options = pass_options(s_.config(), s_.plan);
  double seconds = 0;
  while (std::optional<Group> first = s_.exchange.take_sampled(step)) {
    std::vector<Group> groups;
    groups.push_back(std::move(*first));
    int64_t tokens = num_tokens(groups.front());
    while (tokens < options.token_budget && s_.exchange.sampled_waiting(step)) {
      groups.push_back(*s_.exchange.take_sampled(step));
      tokens += num_tokens(groups.back());
    }
    const Stopwatch watch;
    const TraceSpan span(s_.trace, step, "reference",
                         fmt::format("{} groups of step {}", groups.size(), step));
    std::vector<Trajectory*> missing;
    for (Group& g : groups)
      for (Trajectory& t : g.samples)
        if (t.ref_logprobs.empty()) missing.push_back(&t);
    const std::vector<const Trajectory*> view(missing.begin(), missing.end());
    std::vector<std::vector<double>> logprobs = local_logprobs(s_.ctx, model_, view, options);
    for (size_t i = 0; i < missing.size(); ++i) missing[i]->ref_logprobs = std::move(logprobs[i]);
    for (Group& g : groups) s_.exchange.send_referenced(step, std::move(g));
    seconds += watch.seconds();
  }
  if (s_.exchange.has_ended()) return false;
  s_.exchange.close_referenced(
      step, {.sums = {}, .maxima = {{"timing_s/ref", seconds}}, .stop_requested = stop_requested()});
  return true;
}

}  // namespace temper
