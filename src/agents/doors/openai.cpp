#include "src/agents/doors/openai.h"

#include "src/agents/doors/error_types.h"

namespace temper {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr size_t kMostStops = 64;
constexpr int64_t kMostSamples = 1024;

/// Samples of what they ask for are not the policy's.
void refuse_constraints(const Fields& fields) {
  const char* constrained = "it needs decoding under a constraint, whose samples are not the policy's";
  if (const Json& choice = fields.at("tool_choice");
      !choice.is_null() && choice != "auto" && choice != "none")
    fields.refuse("tool_choice", std::string(constrained) + "; \"auto\" and \"none\" are obeyed");
  if (const Json& format = fields.at("response_format");
      format.is_object() && format.value("type", Json("text")) != "text")
    fields.refuse("response_format", std::string(constrained) + "; the type \"text\" is obeyed");
  if (fields.has("previous_response_id"))
    fields.refuse("previous_response_id", "answers are not kept: send the whole history");
  for (const char* name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"})
    if (fields.has(name)) fields.refuse(name, constrained);
}

std::map<int32_t, double> read_bias(const Fields& fields) {
  std::map<int32_t, double> bias;
  const Json& given = fields.at("logit_bias");
  if (given.is_null()) return bias;
  if (!given.is_object()) fields.refuse("logit_bias", "an object of token ids and numbers is needed");
  for (const auto& [id, value] : given.items()) {
    size_t end = 0;
    const bool digits =
        !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    const int32_t number = digits ? std::stoi(id, &end) : -1;
    if (number < 0 || !value.is_number() || std::abs(value.get<double>()) > 1000)
      fields.refuse("logit_bias", "it holds what is no token id with a number from -1000 to 1000");
    bias[number] = value.get<double>();
  }
  return bias;
}

}  // namespace

void read_common(const Fields& fields, DoorRequest& r, int64_t least) {
  refuse_constraints(fields);
  r.model = fields.text("model").value_or("");
  r.stream = fields.flag("stream");
  if (const Json& options = fields.at("stream_options"); options.is_object())
    r.include_usage = options.value("include_usage", Json()) == true;
  r.n = static_cast<int32_t>(fields.integer("n", 1, kMostSamples).value_or(1));
  r.max_new_tokens = fields.integer("max_completion_tokens", least, kMostTokens)
                         .value_or(fields.integer("max_tokens", least, kMostTokens).value_or(0));
  r.stop = fields.texts("stop", kMostStops);
  r.stop_token_ids = fields.ids("stop_token_ids");
  r.return_token_ids = fields.flag("return_token_ids");
  SamplingWish& s = r.sampling;
  s.temperature = fields.number("temperature", 0, 100);
  s.top_p = fields.number("top_p", 0, 1);
  s.min_p = fields.number("min_p", 0, 1);
  s.top_k = fields.integer("top_k", -1, kMostTokens);
  s.repetition_penalty = fields.number("repetition_penalty", 0.01, 100);
  s.presence_penalty = fields.number("presence_penalty", -100, 100);
  s.frequency_penalty = fields.number("frequency_penalty", -100, 100);
  s.min_new_tokens = fields.integer("min_tokens", 0, kMostTokens);
  s.logit_bias = read_bias(fields);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) s.seed = static_cast<uint64_t>(*seed);
}

Json token_logprobs(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                    const std::vector<double>& logprobs) {
  Json list = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string bytes = tokenizer.token_bytes(tokens[i]);
    Json numbers = Json::array();
    for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
    list.push_back({{"token", bytes},
                    {"logprob", logprobs[i]},
                    {"bytes", std::move(numbers)},
                    {"top_logprobs", Json::array()}});
  }
  return list;
}

Json weight_versions(const Response& response) {
  Json runs = Json::array();
  for (const auto& [version, tokens] : response.versions) runs.push_back({version, tokens});
  return runs;
}

Json usage_of(const DoorAnswer& answer) {
  const int64_t prompt = answer.prompt_tokens, said = answer.completion_tokens();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", said},
          {"total_tokens", prompt + said},
          {"prompt_tokens_details", {{"cached_tokens", answer.cached_tokens}}}};
}

Json openai_error(const DoorError& e) {
  return {{"error",
           {{"message", e.message},
            {"type", error_types(e.status).openai},
            {"param", e.param.empty() ? Json() : Json(e.param)},
            {"code", e.code.empty() ? Json() : Json(e.code)}}}};
}

std::string data_event(const Json& data) { return "data: " + dump_json_line(data) + "\n\n"; }

}  // namespace temper
