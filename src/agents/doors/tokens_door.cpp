#include "src/agents/doors/tokens_door.h"

#include "src/agents/doors/openai.h"

namespace temper {

DoorRequest TokensDoor::read(const Json& body, const DoorRules& rules) const {
  const Fields fields(body, rules.ignore);
  DoorRequest r;
  const Json& sampling = fields.at("sampling_params");
  if (!sampling.is_null()) read_common(Fields(sampling, rules.ignore), r);
  r.model = fields.text("model").value_or("");
  if (r.stream || fields.flag("stream")) fields.refuse("stream", "answers of this path are whole");
  r.prompts.push_back(fields.ids("token_ids"));
  if (r.prompts.back().empty()) fields.refuse("token_ids", "a prompt has at least one token");
  return r;
}

std::string TokensDoor::answer(const DoorRequest&, const DoorAnswer& a) const {
  Json body{{"request_id", a.id}, {"prompt_token_ids", a.prompt}, {"choices", Json::array()}};
  for (const DoorChoice& c : a.choices) {
    Json logprobs = Json::array();
    for (size_t i = 0; i < c.response.tokens.size(); ++i)
      logprobs.push_back({{"token", fmt::format("token_id:{}", c.response.tokens[i])},
                          {"token_id", c.response.tokens[i]},
                          {"logprob", c.response.logprobs[i]}});
    body["choices"].push_back({{"index", body["choices"].size()},
                               {"token_ids", c.response.tokens},
                               {"finish_reason", finish_reason_name(c.response.finish)},
                               {"logprobs", {{"content", std::move(logprobs)}}},
                               {"weight_versions", weight_versions(c.response)}});
  }
  body["usage"] = usage_of(a);
  return dump_json_line(body);
}

std::unique_ptr<DoorStream> TokensDoor::stream(const DoorRequest&, const DoorAnswer&) const {
  return nullptr;
}

std::string TokensDoor::error(const DoorError& error) const { return dump_json_line(openai_error(error)); }

}  // namespace temper
