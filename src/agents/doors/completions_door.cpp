#include "src/agents/doors/completions_door.h"

#include "src/agents/doors/openai.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr size_t kMostPrompts = 1024;

/// A token's text, or "bytes:\xe6\x97" where it is a part of a character: those would all look alike, and be
/// one key of an object.
std::string name_of(const std::string& bytes) {
  if (!find_invalid_utf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

class CompletionsStream : public DoorStream {
 public:
  CompletionsStream(const DoorRequest& request, const DoorAnswer& head)
      : request_(request),
        chunk_{{"id", head.id},
               {"object", "text_completion"},
               {"created", head.created},
               {"model", request.model}} {}

  std::string begin() override { return ""; }
  std::string delta(const DoorDelta& d) override {
    if (d.text.empty() && !request_.return_token_ids) return "";
    Json chunk = chunk_of(d.index, d.text, Json());
    if (request_.return_token_ids) chunk["choices"][0]["token_ids"] = d.tokens;
    return data_event(chunk);
  }
  std::string end_choice(int32_t index, const DoorChoice& choice) override {
    return data_event(chunk_of(index, "", finish_reason_name(choice.response.finish)));
  }
  std::string end(const DoorAnswer& answer) override {
    Json chunk = chunk_;
    chunk["choices"] = Json::array();
    chunk["usage"] = usage_of(answer);
    return (request_.include_usage ? data_event(chunk) : "") + "data: [DONE]\n\n";
  }
  std::string keep_alive() override { return ": keep-alive\n\n"; }
  std::string error(const DoorError& error) override { return data_event(openai_error(error)); }

 private:
  Json chunk_of(int32_t index, const std::string& text, Json finish) const {
    Json chunk = chunk_;
    chunk["choices"] =
        Json::array({{{"index", index}, {"text", text}, {"finish_reason", std::move(finish)}}});
    return chunk;
  }

  const DoorRequest request_;
  const Json chunk_;
};

}  // namespace

DoorRequest CompletionsDoor::read(const Json& body, const DoorRules& rules) const {
  const Fields fields(body, rules.ignore);
  DoorRequest r;
  read_common(fields, r, /*least=*/0);
  r.echo = fields.flag("echo");
  const char* const limit = fields.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  r.only_prompt = fields.at(limit) == 0;
  if (r.only_prompt && !r.echo)
    fields.refuse(limit,
                  "an answer of 0 tokens says nothing; with `echo` it is the prompt and its log-probs");
  r.logprobs = fields.has("logprobs") && fields.at("logprobs") != false;
  if (r.logprobs && fields.at("logprobs").is_number()) fields.integer("logprobs", 0, 1);
  if (r.max_new_tokens == 0 && !r.only_prompt) r.max_new_tokens = 16;  // what OpenAI's has
  const Json& prompt = fields.at("prompt");
  if (prompt.is_string())
    r.prompts.push_back(tokenizer_.encode(prompt.get<std::string>(), /*add_special=*/true));
  if (prompt.is_array() &&
      (prompt.empty() || prompt.size() > kMostPrompts * (prompt[0].is_number() ? 65536 : 1)))
    fields.refuse("prompt", fmt::format("a list has 1 to {} prompts", kMostPrompts));
  if (prompt.is_array() && prompt[0].is_number()) r.prompts.push_back(token_ids(prompt, "prompt"));
  if (prompt.is_array() && !prompt[0].is_number())
    for (const Json& one : prompt)
      r.prompts.push_back(one.is_string() ? tokenizer_.encode(one.get<std::string>(), /*add_special=*/true)
                                          : token_ids(one, "prompt"));
  if (r.prompts.empty()) fields.refuse("prompt", "a text, ids, or a list of them is needed");
  for (const std::vector<int32_t>& ids : r.prompts)
    if (ids.empty()) fields.refuse("prompt", "a prompt has no tokens");
  if (r.prompts.size() * static_cast<size_t>(r.n) > kMostPrompts)
    fields.refuse("n", fmt::format("{} answers to each of {} prompts, {} are the most of a request", r.n,
                                   r.prompts.size(), kMostPrompts));
  if (r.stream && r.echo) fields.refuse("echo", "a stream does not say the prompt");
  return r;
}

Json CompletionsDoor::logprobs_of(const DoorRequest& request, const DoorChoice& c) const {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  size_t offset = 0;
  const auto named = [&](int32_t id) { return name_of(tokenizer_.token_bytes(id)); };
  const auto add = [&](int32_t id, Json logprob, Json top) {
    const std::string text = tokenizer_.token_bytes(id);
    tokens.push_back(name_of(text));
    logprobs.push_back(std::move(logprob));
    tops.push_back(std::move(top));
    offsets.push_back(std::exchange(offset, offset + text.size()));
  };
  for (size_t i = 0; request.echo && i < c.prompt.size(); ++i) {
    if (i == 0 || i >= c.prompt_logprobs.size()) {
      add(c.prompt[i], Json(), Json());
      continue;
    }
    const PromptLogprob& p = c.prompt_logprobs[i];
    Json top{{named(c.prompt[i]), p.logprob}};
    top[named(p.best)] = p.best_logprob;
    add(c.prompt[i], p.logprob, std::move(top));
  }
  for (size_t i = 0; i < c.response.tokens.size(); ++i)
    add(c.response.tokens[i], c.response.logprobs[i],
        Json{{named(c.response.tokens[i]), c.response.logprobs[i]}});
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::string CompletionsDoor::answer(const DoorRequest& request, const DoorAnswer& a) const {
  Json body{{"id", a.id}, {"object", "text_completion"}, {"created", a.created}, {"model", request.model}};
  body["choices"] = Json::array();
  for (const DoorChoice& c : a.choices) {
    const std::string prompt = request.echo ? tokenizer_.decode(c.prompt, /*skip_special=*/false) : "";
    Json choice{{"index", body["choices"].size()},
                {"text", prompt + c.response.text},
                {"finish_reason", finish_reason_name(c.response.finish)}};
    choice["logprobs"] = request.logprobs ? logprobs_of(request, c) : Json();
    if (request.return_token_ids) choice["token_ids"] = c.response.tokens;
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = usage_of(a);
  return dump_json_line(body);
}

std::unique_ptr<DoorStream> CompletionsDoor::stream(const DoorRequest& request,
                                                    const DoorAnswer& head) const {
  return std::make_unique<CompletionsStream>(request, head);
}

std::string CompletionsDoor::error(const DoorError& error) const {
  return dump_json_line(openai_error(error));
}

}  // namespace temper
