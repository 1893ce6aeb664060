#include "src/agents/service/asked_bytes.h"

#include "src/core/json.h"

namespace temper {
namespace {

Json to_json(const GenerateOptions& o) {
  const SampleOptions& s = o.sampling;
  Json bias = Json::array();
  for (const auto& [id, value] : o.logit_bias) bias.push_back({id, value});
  return {s.temperature,
          s.top_k,
          s.top_p,
          s.min_p,
          s.repetition_penalty,
          s.frequency_penalty,
          s.presence_penalty,
          o.seed,
          o.max_new_tokens,
          o.min_new_tokens,
          o.stop_token_ids,
          o.stop,
          o.include_stop_text,
          bias,
          o.tokens_per_call};
}

GenerateOptions options_from(const Json& v) {
  GenerateOptions o;
  o.sampling = {v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
  o.seed = v[7];
  o.max_new_tokens = v[8];
  o.min_new_tokens = v[9];
  o.stop_token_ids = v[10].get<std::vector<int32_t>>();
  o.stop = v[11].get<std::vector<std::string>>();
  o.include_stop_text = v[12];
  for (const Json& bias : v[13]) o.logit_bias[bias[0]] = bias[1];
  o.tokens_per_call = v[14];
  return o;
}

/// What an earlier call began; it has no routes.
Json to_json(const std::vector<Response>& begun) {
  Json all = Json::array();
  for (const Response& r : begun) all.push_back({r.tokens, r.logprobs, r.versions, r.text});
  return all;
}

std::vector<Response> begun_from(const Json& all) {
  std::vector<Response> begun;
  for (const Json& v : all) {
    Response r{.tokens = v[0], .mask = {}, .logprobs = v[1], .versions = v[2], .text = v[3]};
    r.mask.assign(r.tokens.size(), 1);
    begun.push_back(std::move(r));
  }
  return begun;
}

}  // namespace

std::string asked_to_bytes(const EngineDesk::Asked& asked, bool last) {
  Json fresh = Json::array();
  for (const auto& [number, r] : asked.fresh) {
    fresh.push_back({number, r.data_position, r.prompt, r.num_samples, r.first_sample,
                     r.own ? to_json(*r.own) : Json(), to_json(r.begun), r.after_stop, r.scores_prompt});
  }
  return Json{fresh, asked.cancelled, last}.dump();
}

std::pair<EngineDesk::Asked, bool> asked_from_bytes(std::string_view bytes) {
  const Json told = Json::parse(bytes);
  EngineDesk::Asked asked;
  for (const Json& v : told[0]) {
    Request r{.data_position = v[1],
              .prompt = v[2].get<std::vector<int32_t>>(),
              .num_samples = v[3],
              .first_sample = v[4],
              .begun = begun_from(v[6]),
              .after_stop = v[7],
              .scores_prompt = v[8]};
    if (!v[5].is_null()) r.own = std::make_shared<const GenerateOptions>(options_from(v[5]));
    asked.fresh.emplace_back(v[0].get<DeskNumber>(), std::move(r));
  }
  asked.cancelled = told[1].get<std::vector<DeskNumber>>();
  return {std::move(asked), told[2].get<bool>()};
}

}  // namespace temper
