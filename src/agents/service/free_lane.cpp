#include "src/agents/service/free_lane.h"

#include <algorithm>
#include <ctime>

#include "src/core/digest/hash.h"

namespace temper {
namespace {

/// To a prompt whose answer is limited to 0 tokens.
Response nothing_said() {
  Response r;
  r.finish = FinishReason::length;
  return r;
}

}  // namespace

void FreeLane::receive(std::shared_ptr<HttpExchange> exchange) {
  const Routed routed = *route_of(exchange->request().path);
  try {
    answer(exchange, routed);
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    reply_error(*exchange, p_.doors.at(routed.route), door_error(e));
  }
}

void FreeLane::answer(const std::shared_ptr<HttpExchange>& exchange, const Routed& routed) {
  // A request of completions may have many prompts.
  const int64_t prompts = routed.route == Route::completions ? 1024 : 1;
  const Json body =
      routed.posts ? p_.doors.parse(exchange->request().body, prompts * p_.rules.context_tokens) : Json();
  switch (routed.route) {
    case Route::chat:
    case Route::messages:
    case Route::tokens:
    case Route::completions: {
      const Door& door = p_.doors.at(routed.route);
      if (body.contains("prompt") && body["prompt"].is_string())
        p_.doors.require_short(body["prompt"], p_.rules.context_tokens);
      return ask(exchange, door, door.read(body, p_.rules.doors));
    }
    case Route::models:
      return exchange->reply(200, dump_json_line(model_list({p_.rules.model}, p_.rules.context_tokens)));
    case Route::count_tokens: {
      const DoorRequest r = p_.doors.at(routed.route).read(body, p_.rules.doors);
      const Json counted{{"input_tokens", rendered(r).size()}};
      return exchange->reply(200, dump_json_line(counted));
    }
    default:
      return exchange->reply(
          200, dump_json_line(describe(routed.route, body, p_.doors.tokenizer(), p_.rules.context_tokens)));
  }
}

GenerateOptions FreeLane::options_of(const DoorRequest& r, int64_t prompt_tokens) const {
  GenerateOptions o = p_.rules.defaults;
  const SamplingWish& wish = r.sampling;
  SampleOptions& s = o.sampling;
  s.temperature = wish.temperature.value_or(s.temperature);
  s.top_p = wish.top_p.value_or(s.top_p);
  s.min_p = wish.min_p.value_or(s.min_p);
  s.top_k = static_cast<int32_t>(wish.top_k.value_or(s.top_k));
  s.repetition_penalty = wish.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = wish.presence_penalty.value_or(s.presence_penalty);
  s.frequency_penalty = wish.frequency_penalty.value_or(s.frequency_penalty);
  o.min_new_tokens = wish.min_new_tokens.value_or(o.min_new_tokens);
  for (const auto& [id, bias] : wish.logit_bias) o.logit_bias[id] = bias;
  const int64_t room = p_.rules.context_tokens - prompt_tokens;
  o.max_new_tokens = std::min(room, r.max_new_tokens > 0   ? r.max_new_tokens
                                    : o.max_new_tokens > 0 ? o.max_new_tokens
                                                           : room);
  o.stop.insert(o.stop.end(), r.stop.begin(), r.stop.end());
  o.stop_token_ids.insert(o.stop_token_ids.end(), r.stop_token_ids.begin(), r.stop_token_ids.end());
  return o;
}

std::vector<int32_t> FreeLane::rendered(const DoorRequest& r) const {
  if (!p_.cut)
    throw RequestError(
        {.what = "messages cannot be rendered",
         .where = "messages",
         .why = "the model's folder has no chat template; /v1/completions takes texts and ids"});
  p_.doors.require_short(r.messages, p_.rules.context_tokens);
  p_.doors.require_short(r.tools, p_.rules.context_tokens);
  p_.cut->require_tools_shown(r.messages, r.tools, r.arguments);
  return p_.cut->whole(r.messages, r.tools, r.arguments);
}

void FreeLane::ask(const std::shared_ptr<HttpExchange>& exchange, const Door& door, DoorRequest r) {
  if (r.prompts.empty()) r.prompts.push_back(rendered(r));
  for (const std::vector<int32_t>& prompt : r.prompts)
    if (std::ssize(prompt) + (r.only_prompt ? 0 : 1) > p_.rules.context_tokens)
      return reply_error(*exchange, door, too_long(std::ssize(prompt), p_.rules.context_tokens));
  // The random numbers of a request with a seed are its own; else those of the next prompt of this lane.
  const auto lanes = static_cast<int64_t>(p_.desk.lanes());
  const int64_t lane = p_.rules.team * lanes + static_cast<int64_t>(p_.lane);
  const int64_t position =
      r.sampling.seed ? 0 : (turns_++ * p_.rules.teams * lanes + lane) % SampleKey::kMaxPosition;
  const std::string key = fmt::format("{} {} {} {}", lane, turns_, std::time(nullptr), r.prompts.size());
  const int32_t n = r.n;
  DoorAnswer head{.id = "chatcmpl-" + digest_hex(key.data(), std::ssize(key)),
                  .created = std::time(nullptr),
                  .prompt = r.prompts.front(),
                  .choices = {}};
  for (const std::vector<int32_t>& prompt : r.prompts) head.prompt_tokens += std::ssize(prompt);
  const TurnFormat format = p_.cut && r.messages.is_array() ? p_.cut->format(r.arguments) : TurnFormat{};
  const std::vector<std::vector<int32_t>> prompts = r.prompts;
  const auto open = std::make_shared<OpenAnswer>(exchange, door, std::move(r), std::move(head), format);
  ++num_open_;
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerateOptions own = options_of(open->request(), std::ssize(prompts[i]));
    own.seed = open->request().sampling.seed.value_or(own.seed);
    const DeskNumber number =
        p_.desk.ask(p_.lane, {.data_position = position + static_cast<int64_t>(i),
                              .prompt = prompts[i],
                              .num_samples = open->request().only_prompt ? 0 : n,
                              .scores_prompt = open->request().scores_prompts(),
                              .own = std::make_shared<const GenerateOptions>(std::move(own))});
    const int32_t first = static_cast<int32_t>(i) * n;
    open->score(first, prompts[i], {});
    asked_.emplace(number, Asked{open, first});
  }
}

void FreeLane::hear(DeskNews news) {
  for (const DeskNews::Grown& g : news.grown)
    if (const auto at = asked_.find(g.number); at != asked_.end())
      at->second.answer->grow(at->second.first + g.sample, {{g.token}, {g.logprob}, g.text, g.found});
  for (const DeskNews::Scored& scored : news.scored)
    if (const auto at = asked_.find(scored.number); at != asked_.end()) {
      std::vector<PromptLogprob> logprobs;
      for (const PromptScore& p : scored.scores) logprobs.push_back({p.logprob, p.best, p.best_logprob});
      OpenAnswer& answer = *at->second.answer;
      const int32_t first = at->second.first;
      answer.score(first, answer.prompt_of(first), std::move(logprobs));
    }
  for (DeskNews::Done& d : news.done)
    if (const auto at = asked_.find(d.number); at != asked_.end()) {
      const DoorRequest& asked = at->second.answer->request();
      if (asked.only_prompt) d.responses.assign(static_cast<size_t>(asked.n), nothing_said());
      for (size_t k = 0; k < d.responses.size(); ++k)
        at->second.answer->finish(at->second.first + static_cast<int32_t>(k), std::move(d.responses[k]));
    }
  for (const DeskNews::Refused& r : news.refused)
    if (const auto at = asked_.find(r.number); at != asked_.end())
      at->second.answer->fail({.status = 400, .message = r.why});
  forget_finished();
}

/// Finished ones, and those that nobody waits for. An answer is open until its client has it: a server that
/// ends closes all connections.
void FreeLane::forget_finished() {
  std::erase_if(asked_, [&](const auto& entry) {
    const std::shared_ptr<OpenAnswer>& a = entry.second.answer;
    if (!a->finished() && !a->gone()) return false;
    if (!a->finished()) p_.desk.cancel(entry.first);
    if (a.use_count() == 1) said_.push_back(a);
    return true;
  });
  num_open_ -= static_cast<int64_t>(
      std::erase_if(said_, [](const auto& answer) { return answer->delivered() || answer->gone(); }));
}

void FreeLane::end_answers(const DoorError& error) {
  for (const auto& [number, asked] : asked_) {
    p_.desk.cancel(number);
    asked.answer->fail(error);
  }
  forget_finished();
}

void FreeLane::tick() {
  const auto now = OpenAnswer::Clock::now();
  for (const auto& [number, asked] : asked_) asked.answer->tick(now);
  forget_finished();
}

}  // namespace temper
