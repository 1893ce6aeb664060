#include "src/agents/doors/chat_door.h"

#include "src/agents/doors/openai.h"
#include "src/agents/turns/messages.h"

namespace temper {
namespace {

Json call_of(const ToolCall& call, const std::string& id) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments_text}}}};
}

Json message_of(const DoorChoice& choice) {
  const TurnText& said = choice.said;
  const bool only_calls = said.content.empty() && !said.calls.empty();
  Json message{{"role", "assistant"}, {"content", only_calls ? Json() : Json(said.content)}};
  if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
  for (size_t i = 0; i < said.calls.size(); ++i)
    message["tool_calls"].push_back(call_of(said.calls[i], choice.call_ids[i]));
  return message;
}

class ChatStream : public DoorStream {
 public:
  ChatStream(const Tokenizer& tokenizer, const DoorRequest& request, const DoorAnswer& head)
      : tokenizer_(tokenizer),
        request_(request),
        prompt_(head.prompt),
        chunk_{{"id", head.id},
               {"object", "chat.completion.chunk"},
               {"created", head.created},
               {"model", request.model}},
        calls_(static_cast<size_t>(request.n)) {}

  std::string begin() override {
    std::string events;
    for (int32_t index = 0; index < request_.n; ++index) {
      Json chunk = chunk_of(index, {{"role", "assistant"}, {"content", ""}}, Json());
      if (request_.return_token_ids && index == 0) chunk["prompt_token_ids"] = prompt_;
      events += data_event(chunk);
    }
    return events;
  }

  std::string delta(const DoorDelta& d) override {
    Json delta = Json::object();
    if (!d.said.reasoning.empty()) delta["reasoning_content"] = d.said.reasoning;
    if (!d.said.content.empty()) delta["content"] = d.said.content;
    for (size_t i = 0; i < d.said.calls.size(); ++i) {
      Json call = call_of(d.said.calls[i], d.call_ids[i]);
      call["index"] = calls_[static_cast<size_t>(d.index)]++;
      delta["tool_calls"].push_back(std::move(call));
    }
    if (delta.empty() && !request_.return_token_ids && !request_.logprobs) return "";
    Json chunk = chunk_of(d.index, std::move(delta), Json());
    Json& choice = chunk["choices"][0];
    if (request_.logprobs)
      choice["logprobs"] = {{"content", token_logprobs(tokenizer_, d.tokens, d.logprobs)}};
    if (request_.return_token_ids) choice["token_ids"] = d.tokens;
    return data_event(chunk);
  }

  std::string end_choice(int32_t index, const DoorChoice& choice) override {
    Json chunk = chunk_of(index, Json::object(), finish_of(choice));
    if (request_.return_token_ids) chunk["choices"][0]["weight_versions"] = weight_versions(choice.response);
    return data_event(chunk);
  }

  std::string end(const DoorAnswer& answer) override {
    std::string events;
    if (request_.include_usage) {
      Json chunk = chunk_;
      chunk["choices"] = Json::array();
      chunk["usage"] = usage_of(answer);
      events = data_event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string keep_alive() override { return ": keep-alive\n\n"; }
  std::string error(const DoorError& error) override { return data_event(openai_error(error)); }

 private:
  Json chunk_of(int32_t index, Json delta, Json finish) const {
    Json chunk = chunk_;
    chunk["choices"] =
        Json::array({{{"index", index}, {"delta", std::move(delta)}, {"finish_reason", std::move(finish)}}});
    return chunk;
  }

  const Tokenizer& tokenizer_;
  const DoorRequest request_;
  const std::vector<int32_t> prompt_;
  const Json chunk_;
  std::vector<int> calls_;  // by choice: said so far
};

}  // namespace

DoorRequest ChatDoor::read(const Json& body, const DoorRules& rules) const {
  const Fields fields(body, rules.ignore);
  DoorRequest r;
  read_common(fields, r);
  if (fields.integer("top_logprobs", 0, 1000).value_or(0) > 0)
    fields.refuse("top_logprobs", "only log-probs of the sampled tokens are known");
  r.logprobs = fields.flag("logprobs");
  r.messages = normal_messages(fields.at("messages"));
  if (r.messages.back()["role"] == "assistant")
    fields.refuse("messages", "the last message is the assistant's: an answer is not continued");
  if (fields.at("tool_choice") != "none") r.tools = fields.at("tools");
  if (!r.tools.is_null() && !r.tools.is_array()) fields.refuse("tools", "a list is needed");
  r.arguments = fields.at("chat_template_kwargs");
  if (!r.arguments.is_null() && !r.arguments.is_object())
    fields.refuse("chat_template_kwargs", "an object is needed");
  return r;
}

std::string ChatDoor::answer(const DoorRequest& request, const DoorAnswer& a) const {
  Json body{{"id", a.id}, {"object", "chat.completion"}, {"created", a.created}, {"model", request.model}};
  if (request.return_token_ids) body["prompt_token_ids"] = a.prompt;
  body["choices"] = Json::array();
  for (const DoorChoice& c : a.choices) {
    Json choice{
        {"index", body["choices"].size()}, {"message", message_of(c)}, {"finish_reason", finish_of(c)}};
    choice["logprobs"] =
        request.logprobs
            ? Json{{"content", token_logprobs(tokenizer_, c.response.tokens, c.response.logprobs)}}
            : Json();
    if (request.return_token_ids) {
      choice["token_ids"] = c.response.tokens;
      choice["weight_versions"] = weight_versions(c.response);
    }
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = usage_of(a);
  return dump_json_line(body);
}

std::unique_ptr<DoorStream> ChatDoor::stream(const DoorRequest& request, const DoorAnswer& head) const {
  return std::make_unique<ChatStream>(tokenizer_, request, head);
}

std::string ChatDoor::error(const DoorError& error) const { return dump_json_line(openai_error(error)); }

}  // namespace temper
