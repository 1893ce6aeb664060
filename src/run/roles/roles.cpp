#include "src/core/stop_signal.h"
#include "src/rl/trajectory_json.h"
#include "src/run/roles/prompt_work.h"
#include "src/run/roles/role.h"

namespace temper {
namespace {

int64_t num_tokens(const Group& group) {
  int64_t tokens = 0;
  for (const Trajectory& t : group.samples)
    tokens += static_cast<int64_t>(t.prompt_tokens.size() + t.response.tokens.size());
  return tokens;
}

/// The response that the data bring, as if weights of this version had said it.
Response given_response(const Prompt& p, int64_t version) {
  Response r;
  r.tokens = p.response_tokens;
  r.mask.assign(r.tokens.size(), 1);
  if (!r.tokens.empty()) r.versions = {{version, static_cast<int32_t>(r.tokens.size())}};
  r.text = p.response;
  r.finish = FinishReason::stop;
  return r;
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

bool DataRole::phase(int64_t step) {
  const std::vector<DrawnPrompt> lines = s_.prompts->next(s_.plan.batch.prompts_per_step);
  const Share share{s_.dp->rank(), s_.dp->size()};
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!share.has(static_cast<int64_t>(i))) continue;
    s_.groups.send_sampled(step, to_group({lines[i]}, {given_response(lines[i].prompt, step - 1)}));
  }
  s_.groups.close_sampled(step, {.data_position = s_.prompts->position()});
  return true;
}

bool ReplayRole::phase(int64_t step) {
  std::vector<Group> groups = read_rollouts(files_[static_cast<size_t>(step - 1)],
                                            {s_.model.config().vocab_size, s_.model.context_tokens()});
  const Share share{s_.dp->rank(), s_.dp->size()};
  for (size_t i = 0; i < groups.size(); ++i)
    if (share.has(static_cast<int64_t>(i))) s_.groups.send_sampled(step, std::move(groups[i]));
  s_.groups.close_sampled(step, {.maxima = {{"replay/groups", static_cast<double>(groups.size())}}});
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
  while (std::optional<Group> first = s_.groups.take(stage_, step)) {
    std::vector<Group> groups;
    groups.push_back(std::move(*first));
    int64_t tokens = num_tokens(groups.front());
    while (tokens < options.token_budget && s_.groups.waiting(stage_, step)) {
      groups.push_back(*s_.groups.take(stage_, step));
      tokens += num_tokens(groups.back());
    }
    const Stopwatch watch;
    const TraceSpan span(s_.trace, step, "reference",
                         fmt::format("{} groups of step {}", groups.size(), step));
    std::vector<const Trajectory*> view;
    for (const Group& g : groups)
      for (const Trajectory& t : g.samples)
        if (t.ref_logprobs.empty()) view.push_back(&t);
    std::vector<std::vector<double>> logprobs = local_logprobs(s_.ctx, model_, view, options);
    std::vector<Annotation> annotations;
    for (size_t i = 0; i < view.size(); ++i)
      annotations.push_back(
          {view[i]->data_position, view[i]->sample, "ref_logprobs", std::move(logprobs[i])});
    s_.groups.annotate(stage_, step, annotations);
    seconds += watch.seconds();
  }
  if (s_.end.has_come()) return false;
  s_.groups.close(stage_, step, {.maxima = {{"timing_s/ref", seconds}}, .stop_requested = stop_requested()});
  return true;
}

}  // namespace temper
