#include "src/agents/turns/anthropic.h"

#include <optional>
#include <string_view>

#include "src/agents/turns/messages.h"
#include "src/agents/turns/request_error.h"

namespace temper::anthropic {
namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header";

/// Null: the object lacks it, or has null.
const Json* member(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

[[noreturn]] void refuse_kind(const std::string& where, const char* wanted, const Json& found) {
  throw RequestError({.what = fmt::format("expected {}", wanted),
                      .where = where,
                      .why = "found " + json_kind(found),
                      .fix = "send a request in the form of Anthropic's messages"});
}

std::string text_at(const Json& object, const char* name, const std::string& where) {
  const Json* found = member(object, name);
  if (!found || !found->is_string()) refuse_kind(where + "." + name, "a text", found ? *found : Json());
  return found->get<std::string>();
}

/// A block and its type.
struct Block {
  const Json& json;
  std::string type, where;
};

Block block_at(const Json& list, size_t i, const std::string& where) {
  const std::string place = fmt::format("{}[{}]", where, i);
  if (!list[i].is_object()) refuse_kind(place, "a block", list[i]);
  return {list[i], text_at(list[i], "type", place), place};
}

[[noreturn]] void refuse_block(const Block& block) {
  throw RequestError({.what = "a block of a type that is not taken here",
                      .where = block.where + ".type",
                      .why = fmt::format("found \"{}\", and the model reads texts", block.type.substr(0, 80)),
                      .fix = "send blocks of text, thinking, tool_use and tool_result"});
}

void add_line(std::string& text, const std::string& more, bool first) { text += (first ? "" : "\n") + more; }

/// A text, or blocks of text joined by line breaks; `keeps` says of each whether it counts.
template <class Keeps>
std::string joined_text(const Json& content, const std::string& where, const Keeps& keeps) {
  if (content.is_null()) return "";
  if (content.is_string())
    return keeps(content.get_ref<const std::string&>()) ? content.get<std::string>() : "";
  if (!content.is_array()) refuse_kind(where, "a text or a list of blocks", content);
  std::string joined;
  bool first = true;
  for (size_t i = 0; i < content.size(); ++i) {
    const Block block = block_at(content, i, where);
    if (block.type != "text") refuse_block(block);
    const std::string text = text_at(block.json, "text", block.where);
    if (!keeps(text)) continue;
    add_line(joined, text, first);
    first = false;
  }
  return joined;
}

std::string all_text(const Json& content, const std::string& where) {
  return joined_text(content, where, [](const std::string&) { return true; });
}

/// Makes the messages of the chat form.
class Messages {
 public:
  explicit Messages(const Json& body) {
    if (const Json* system = member(body, "system")) {
      const std::string text =
          joined_text(*system, "system", [](const std::string& said) { return !said.starts_with(kBilling); });
      if (!text.empty()) made_.push_back({{"role", "system"}, {"content", text}});
    }
    const Json* messages = member(body, "messages");
    if (!messages || !messages->is_array())
      refuse_kind("messages", "a list of messages", messages ? *messages : Json());
    for (size_t i = 0; i < messages->size(); ++i) add((*messages)[i], fmt::format("messages[{}]", i));
    if (!held_.empty()) made_.push_back({{"role", "user"}, {"content", held_}});
  }

  Json take() { return normal_messages(made_); }

 private:
  void add(const Json& message, const std::string& where) {
    if (!message.is_object()) refuse_kind(where, "a message", message);
    const std::string role = text_at(message, "role", where);
    const Json content = message.value("content", Json());
    if (role == "system") return add_system(all_text(content, where + ".content"));
    if (role == "assistant") return add_assistant(content, where + ".content");
    const size_t before = made_.size();
    add_user(content, where + ".content");
    if (held_.empty() || made_.size() == before) return;
    fold(std::exchange(held_, {}));
  }

  void add_system(const std::string& text) {
    const bool leads = made_.empty() || made_.back()["role"] == "system";
    if (leads)
      made_.push_back({{"role", "system"}, {"content", text}});
    else if (made_.back()["role"] == "assistant")  // never between a call and its results
      held_ += (held_.empty() ? "" : "\n\n") + text;
    else
      fold(text);
  }
  void fold(const std::string& text) { made_.back()["content"].get_ref<std::string&>() += "\n\n" + text; }

  void add_assistant(const Json& content, const std::string& where) {
    Json said{{"role", "assistant"}, {"content", ""}};
    if (!content.is_array()) {
      said["content"] = all_text(content, where);
      made_.push_back(std::move(said));
      return;
    }
    std::string text, thoughts;
    int64_t texts = 0, thinking = 0;
    Json calls = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
      const Block block = block_at(content, i, where);
      if (block.type == "text") {
        add_line(text, text_at(block.json, "text", block.where), texts++ == 0);
      } else if (block.type == "thinking") {
        add_line(thoughts, text_at(block.json, "thinking", block.where), thinking++ == 0);
      } else if (block.type == "tool_use") {
        const Json* input = member(block.json, "input");
        if (input && !input->is_object()) refuse_kind(block.where + ".input", "an object", *input);
        calls.push_back({{"id", text_at(block.json, "id", block.where)},
                         {"type", "function"},
                         {"function",
                          {{"name", text_at(block.json, "name", block.where)},
                           {"arguments", input ? *input : Json::object()}}}});
      } else if (block.type != "redacted_thinking") {
        refuse_block(block);
      }
    }
    said["content"] = std::move(text);
    if (!thoughts.empty()) said["reasoning_content"] = std::move(thoughts);
    if (!calls.empty()) said["tool_calls"] = std::move(calls);
    made_.push_back(std::move(said));
  }

  void add_user(const Json& content, const std::string& where) {
    std::string text;
    int64_t texts = 0, results = 0;
    if (!content.is_array()) text = all_text(content, where);
    for (size_t i = 0; content.is_array() && i < content.size(); ++i) {
      const Block block = block_at(content, i, where);
      if (block.type == "text") {
        add_line(text, text_at(block.json, "text", block.where), texts++ == 0);
      } else if (block.type == "tool_result") {
        ++results;
        made_.push_back({{"role", "tool"},
                         {"content", all_text(block.json.value("content", Json()), block.where + ".content")},
                         {"tool_call_id", text_at(block.json, "tool_use_id", block.where)}});
      } else {
        refuse_block(block);
      }
    }
    if (results == 0 || texts > 0) made_.push_back({{"role", "user"}, {"content", std::move(text)}});
  }

  Json made_ = Json::array();
  std::string held_;  // of the system, until the results of the assistant's calls are there
};

Json tools_of(const Json& tools) {
  if (!tools.is_array()) refuse_kind("tools", "a list of tools", tools);
  Json made = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    if (!tools[i].is_object()) refuse_kind(where, "a tool", tools[i]);
    const Json* schema = member(tools[i], "input_schema");
    if (!schema) continue;  // the provider's own
    if (!schema->is_object()) refuse_kind(where + ".input_schema", "an object", *schema);
    Json function{{"name", text_at(tools[i], "name", where)}};
    if (member(tools[i], "description")) function["description"] = text_at(tools[i], "description", where);
    function["parameters"] = *schema;
    made.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return made;
}

Json choice_of(const Json& choice) {
  if (!choice.is_object()) refuse_kind("tool_choice", "an object", choice);
  const std::string type = text_at(choice, "type", "tool_choice");
  if (type == "any") return "required";
  if (type == "tool")
    return {{"type", "function"}, {"function", {{"name", text_at(choice, "name", "tool_choice")}}}};
  return type;
}

const char* stop_reason(const Ending& ending) {
  if (!ending.sequence.is_null()) return "stop_sequence";
  return ending.reason == "length" ? "max_tokens" : ending.reason == "tool_calls" ? "tool_use" : "end_turn";
}

Json prompt_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt - usage.cached},
          {"cache_read_input_tokens", usage.cached},
          {"output_tokens", usage.turn}};
}

}  // namespace

Json chat_request(const Json& body) {
  if (!body.is_object()) refuse_kind("body", "an object", body);
  Json chat{{"messages", Messages(body).take()}};
  for (const char* name : {"model", "max_tokens", "stream", "temperature", "top_p", "top_k"})
    if (const Json* given = member(body, name)) chat[name] = *given;
  if (const Json* tools = member(body, "tools"))
    if (Json made = tools_of(*tools); !made.empty()) chat["tools"] = std::move(made);
  if (const Json* choice = member(body, "tool_choice")) chat["tool_choice"] = choice_of(*choice);
  if (const Json* stops = member(body, "stop_sequences")) chat["stop"] = *stops;
  return chat;
}

Json content_blocks(const TurnText& turn, const std::vector<std::string>& call_ids) {
  CHECK(call_ids.size() == turn.calls.size(), "{} ids of {} calls", call_ids.size(), turn.calls.size());
  Json blocks = Json::array();
  if (!turn.reasoning.empty())
    blocks.push_back({{"type", "thinking"}, {"thinking", turn.reasoning}, {"signature", ""}});
  if (!turn.content.empty()) blocks.push_back({{"type", "text"}, {"text", turn.content}});
  for (size_t i = 0; i < call_ids.size(); ++i)
    blocks.push_back({{"type", "tool_use"},
                      {"id", call_ids[i]},
                      {"name", turn.calls[i].name},
                      {"input", turn.calls[i].arguments}});
  return blocks;
}

Json answer(const std::string& id, const std::string& model, Json blocks, const Ending& ending,
            const Usage& usage) {
  return {{"id", id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model},
          {"content", std::move(blocks)},
          {"stop_reason", stop_reason(ending)},
          {"stop_sequence", ending.sequence},
          {"usage", prompt_usage(usage)}};
}

Json error(const std::string& type, const std::string& message) {
  return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}

std::vector<Event> Events::begin(const std::string& id, const std::string& model, const Usage& usage) {
  Json message = answer(id, model, Json::array(), {}, usage);
  message["stop_reason"] = nullptr;
  return {{"message_start", {{"type", "message_start"}, {"message", std::move(message)}}}};
}

void Events::open(Block block, Json content, std::vector<Event>& events) {
  close(events);
  block_ = block;
  events.push_back(
      {"content_block_start",
       {{"type", "content_block_start"}, {"index", blocks_}, {"content_block", std::move(content)}}});
}

void Events::close(std::vector<Event>& events) {
  if (block_ == Block::none) return;
  events.push_back({"content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_++}}});
  block_ = Block::none;
}

void Events::say(Block block, const std::string& said, std::vector<Event>& events) {
  if (said.empty()) return;
  const bool thinks = block == Block::thinking;
  const char* const field = thinks ? "thinking" : "text";
  if (block_ != block) {
    Json content{{"type", field}, {field, ""}};
    if (thinks) content["signature"] = "";
    open(block, std::move(content), events);
  }
  events.push_back({"content_block_delta",
                    {{"type", "content_block_delta"},
                     {"index", blocks_},
                     {"delta", {{"type", thinks ? "thinking_delta" : "text_delta"}, {field, said}}}}});
}

std::vector<Event> Events::add(const TurnText& delta, const std::vector<std::string>& call_ids) {
  CHECK(call_ids.size() == delta.calls.size(), "{} ids of {} calls", call_ids.size(), delta.calls.size());
  std::vector<Event> events;
  say(Block::thinking, delta.reasoning, events);
  // A block of its own begins a line, as what is joined of several does.
  const bool new_line = behind_call_ && block_ != Block::text && delta.content.starts_with('\n');
  say(Block::text, delta.content.substr(new_line ? 1 : 0), events);
  for (size_t i = 0; i < call_ids.size(); ++i) {
    open(
        Block::call,
        {{"type", "tool_use"}, {"id", call_ids[i]}, {"name", delta.calls[i].name}, {"input", Json::object()}},
        events);
    events.push_back(
        {"content_block_delta",
         {{"type", "content_block_delta"},
          {"index", blocks_},
          {"delta", {{"type", "input_json_delta"}, {"partial_json", delta.calls[i].arguments_text}}}}});
    close(events);
    behind_call_ = true;
  }
  return events;
}

std::vector<Event> Events::end(const Ending& ending, const Usage& usage) {
  std::vector<Event> events;
  close(events);
  events.push_back({"message_delta",
                    {{"type", "message_delta"},
                     {"delta", {{"stop_reason", stop_reason(ending)}, {"stop_sequence", ending.sequence}}},
                     {"usage", prompt_usage(usage)}}});
  events.push_back({"message_stop", {{"type", "message_stop"}}});
  return events;
}

}  // namespace temper::anthropic
