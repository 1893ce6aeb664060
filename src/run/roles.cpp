#include <algorithm>
#include <chrono>

#include "src/rl/registry.h"
#include "src/rl/rollout_metrics.h"
#include "src/rl/trajectory_json.h"
#include "src/run/role.h"

namespace temper {
namespace {

constexpr int kRewardThreads = 2;

std::map<std::string, double> counter_metrics(Comm& comm, const RolloutCounters& c) {
  std::vector<double> sums{static_cast<double>(c.preemptions), static_cast<double>(c.rows_prefilled),
                           static_cast<double>(c.rows_shared), static_cast<double>(c.rows_generated),
                           static_cast<double>(c.rows_recomputed)};
  comm.all_reduce_sum(sums, "rollout counters, sum over ranks");
  return {{"rollout/preemptions", sums[0]},
          {"rollout/rows_prefilled", sums[1]},
          {"rollout/rows_shared", sums[2]},
          {"rollout/rows_generated", sums[3]},
          {"rollout/rows_recomputed", sums[4]}};
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
  const RolloutConfig& r = s.config().rollout;
  GenerateOptions o{
      .sampling = {r.temperature, static_cast<int32_t>(r.top_k), r.top_p, r.min_p},
      .seed = s.config().run.seed,
      .max_new_tokens = s.plan.max_new_tokens,
      .stop_token_ids = {r.stop_token_ids.begin(), r.stop_token_ids.end()},
      .stop = r.stop,
      .num_sampleable = std::min<int64_t>(s.model.config().vocab_size, s.tokenizer->vocab_size())};
  if (!r.ignore_eos) {
    const auto& eos = s.model.config().eos_token_ids;
    o.stop_token_ids.insert(o.stop_token_ids.end(), eos.begin(), eos.end());
    if (const auto id = s.tokenizer->eos_id()) o.stop_token_ids.push_back(*id);
  }
  return o;
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

RolloutRole::RolloutRole(Services& services)
    : s_(services),
      engine_(services.model, engine_options(services.config(), services.plan)),
      rewards_(services.config().reward) {}

void RolloutRole::phase(int64_t step) {
  const int64_t version = step - 1;
  s_.exchange.receive_weights(s_.model, version);
  const std::vector<DrawnPrompt> prompts = s_.prompts->next(s_.plan.batch.prompts_per_step);
  std::vector<Request> requests;
  std::vector<size_t> which;
  for (size_t i = static_cast<size_t>(s_.comm.rank()); i < prompts.size();
       i += static_cast<size_t>(s_.comm.size())) {
    requests.push_back({prompts[i].position, prompts[i].prompt.tokens,
                        static_cast<int32_t>(s_.plan.batch.samples_per_prompt)});
    which.push_back(i);
  }
  RewardWorkers workers(rewards_, kRewardThreads);
  RolloutCounters counters;
  {
    const PhaseTimer timer(s_.journal, "gen");
    size_t finished = 0;
    counters = engine_.generate(
        s_.ctx, requests, generate_options(s_), s_.tokenizer, [&](size_t i, std::vector<Completion> samples) {
          const DrawnPrompt& p = prompts[which[i]];
          workers.submit(
              make_group(p.prompt, p.position, static_cast<int32_t>(which[i]), std::move(samples), version),
              p.record);
          s_.journal.status(fmt::format("step {}: generating, {}/{} prompts of this rank", step, ++finished,
                                        requests.size()));
        });
  }
  {
    const PhaseTimer timer(s_.journal, "reward");
    for (Group& g : workers.collect()) s_.exchange.send(Hop::sampled, step, std::move(g));
  }
  s_.journal.add(counter_metrics(s_.comm, counters));
}

void DataRole::phase(int64_t step) {
  const std::vector<DrawnPrompt> lines = s_.prompts->next(s_.plan.batch.prompts_per_step);
  for (size_t i = static_cast<size_t>(s_.comm.rank()); i < lines.size();
       i += static_cast<size_t>(s_.comm.size())) {
    Completion response{lines[i].prompt.response_tokens, {}, lines[i].prompt.response, FinishReason::stop};
    Group group = make_group(lines[i].prompt, lines[i].position, static_cast<int32_t>(i),
                             {std::move(response)}, step - 1);
    s_.exchange.send(Hop::sampled, step, std::move(group));
  }
}

void ReplayRole::phase(int64_t step) {
  std::vector<Group> groups = read_rollouts(files_[static_cast<size_t>(step - 1)],
                                            {s_.model.config().vocab_size, s_.model.context_tokens()});
  s_.journal.set("replay/groups", static_cast<double>(groups.size()));
  for (size_t i = static_cast<size_t>(s_.comm.rank()); i < groups.size();
       i += static_cast<size_t>(s_.comm.size()))
    s_.exchange.send(Hop::sampled, step, std::move(groups[i]));
}

void ReferenceRole::phase(int64_t step) {
  const PhaseTimer timer(s_.journal, "ref");
  std::vector<Group> groups = s_.exchange.receive(Hop::sampled, step);
  std::vector<Trajectory*> missing;
  for (Group& g : groups)
    for (Trajectory& t : g.samples)
      if (t.ref_logprobs.empty()) missing.push_back(&t);
  const std::vector<const Trajectory*> view(missing.begin(), missing.end());
  std::vector<std::vector<double>> logprobs =
      packed_logprobs(s_.ctx, *model_, s_.comm, view, pass_options(s_.config(), s_.plan));
  for (size_t i = 0; i < missing.size(); ++i) missing[i]->ref_logprobs = std::move(logprobs[i]);
  for (size_t i = static_cast<size_t>(s_.comm.rank()); i < groups.size();
       i += static_cast<size_t>(s_.comm.size()))
    s_.exchange.send(Hop::referenced, step, std::move(groups[i]));
}

}  // namespace temper
