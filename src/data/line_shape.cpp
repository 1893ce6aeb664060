#include "src/data/line_shape.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "src/core/check.h"
#include "src/data/prompt_builder.h"

namespace temper {
namespace {

constexpr const char* kAssistant = "assistant";
/// What people call a prompt and a response, likeliest first.
constexpr std::array<std::string_view, 9> kPromptNames{
    "question", "query", "problem", "instruction", "input", "user", "prompt_text", "text", "source"};
constexpr std::array<std::string_view, 9> kResponseNames{
    "completion", "output", "answer", "solution", "chosen", "target", "reply", "label", kAssistant};
struct Speaker {
  std::string_view from, role;
};
constexpr std::array kSpeakers{Speaker{"human", "user"},       Speaker{"user", "user"},
                               Speaker{"gpt", kAssistant},     Speaker{kAssistant, kAssistant},
                               Speaker{"chatgpt", kAssistant}, Speaker{"model", kAssistant},
                               Speaker{"system", "system"},    Speaker{"tool", "tool"},
                               Speaker{"observation", "tool"}, Speaker{"function_response", "tool"}};

bool is_messages(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object() && value.front().contains("role");
}

bool says(const Json& message, std::string_view role) {
  if (!message.is_object()) return false;
  const auto at = message.find("role");
  return at != message.end() && at->is_string() && at->get<std::string>() == role;
}

/// The keys of a line that lacks the one that was looked for.
std::string keys_of(const Json& record) {
  constexpr size_t kMost = 8, kLongest = 40;
  std::string names;
  size_t count = 0;
  for (const auto& [key, unused] : record.items())
    if (++count <= kMost)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", dump_json_line(key.substr(0, kLongest)));
  return names.empty() ? "none" : names + (count > kMost ? fmt::format(" and {} more", count - kMost) : "");
}

constexpr const char *kMessages = "messages", *kConversations = "conversations",
                     *kInstruction = "instruction", *kCompletion = "completion";

/// A line, and what is said of it when it cannot be used.
class Line {
 public:
  Line(const Json& record, const PromptOptions& options, const std::string& where)
      : record_(record), o_(options), where_(where) {}

  /// Null: the line has none.
  Json response() const {
    std::string key = o_.response_key;
    const Json* found = find_key(record_, key);
    if (!found && key == PromptOptions().response_key) found = find_key(record_, key = kCompletion);
    if (!found) return nullptr;
    if (!is_messages(*found)) return text(*found, key);
    require_chat(key);
    if (found->size() == 1 && says(found->front(), kAssistant)) return found->front();
    fail(Exit::data, {.what = fmt::format("\"{}\" is not one message of the assistant", key),
                      .where = where_,
                      .why = fmt::format("it is a list of {}", found->size()),
                      .fix = "trained is one answer: put the messages before it at the end of the prompt"});
  }

  const Json* find(const char* key) const {
    const auto at = record_.find(key);
    return at == record_.end() ? nullptr : &*at;
  }
  /// "" where the key is absent or null.
  std::string text_or_none(const char* key) const {
    const Json* found = find(key);
    return found && !found->is_null() ? text(*found, key) : "";
  }

  std::string text(const Json& found, const std::string& key) const {
    if (found.is_string()) return found.get<std::string>();
    const bool messages = is_messages(found);
    fail(
        Exit::data,
        {.what = fmt::format("a data line has no text \"{}\"", key),
         .where = where_,
         .why = fmt::format("it is {}", messages ? "a list of chat messages" : json_kind(found)),
         .fix = messages ? fmt::format("set data.messages_key = \"{}\" and data.chat = true", key)
                         : "correct the line, or set data.prompt_key / data.messages_key / data.response_key "
                           "(generate: --prompt-key)"});
  }

  void require_chat(const std::string& key) const {
    if (o_.chat) return;
    fail(Exit::data, {.what = fmt::format("\"{}\" is a part of a chat, which needs a template", key),
                      .where = where_,
                      .why = "data.chat is false; keys of the line: " + keys_of(record_),
                      .fix = "set data.chat = true (generate: --chat), or data.prompt_key and "
                             "data.response_key to keys with texts"});
  }

  Json checked(const Json& list, const std::string& key) const {
    if (!list.is_array() || list.empty())
      fail(Exit::data, {.what = fmt::format("\"{}\" is not a list of messages", key),
                        .where = where_,
                        .why = list.is_array() ? "the list is empty" : "it is " + json_kind(list),
                        .fix = "write [{\"role\": ..., \"content\": ...}, ...]"});
    for (const Json& m : list)
      if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
        fail(Exit::data,
             {.what = "a message has no role",
              .where = where_,
              .why = m.is_object() ? "\"role\" is missing or not a text" : "it is " + json_kind(m),
              .fix = "each is {\"role\": ..., \"content\": ...}"});
    return list;
  }

  Json required_response() const {
    Json found = response();
    if (found.is_null()) fail_no_response();
    return found;
  }

  [[noreturn]] void fail_no_response() const {
    fail_missing(o_.response_key, "response", "data.response_key", kResponseNames);
  }

  [[noreturn]] void fail_missing(const std::string& key, const char* of, const char* config_key,
                                 std::span<const std::string_view> names) const {
    std::string advice = fmt::format("correct the line, or set {} to the key of its {}", config_key, of);
    for (const auto& [other, value] : record_.items())
      if (is_messages(value)) advice = fmt::format("set data.messages_key = {}", dump_json_line(other));
    for (const std::string_view name : names)
      if (const auto at = record_.find(std::string(name)); at != record_.end() && at->is_string()) {
        advice = fmt::format("set {} = \"{}\"", config_key, name);
        break;
      }
    fail(Exit::data,
         {.what = fmt::format("a data line has no text \"{}\"", key),
          .where = where_,
          .why = "the key is missing; keys of the line: " + keys_of(record_),
          .fix = advice + (names.data() == kPromptNames.data() ? " (generate: --prompt-key)" : "")});
  }

 protected:
  const Json& record_;
  const PromptOptions& o_;
  const std::string& where_;
};

/// Finds the parts of a line.
class LineReader : Line {
 public:
  using Line::Line;

  LineParts read(bool wanted) const {
    const Json* messages = o_.chat && !o_.messages_key.empty() ? find_key(record_, o_.messages_key) : nullptr;
    if (messages) {
      LineParts parts{.messages = checked(*messages, o_.messages_key), .keys = {o_.messages_key}};
      if (wanted && says(parts.messages.back(), kAssistant))
        take_last(parts);
      else if (wanted)
        parts.response = required_response();
      return parts;
    }
    if (const Json* prompt = find_key(record_, o_.prompt_key)) return of_prompt(*prompt, wanted);
    if (o_.prompt_key == PromptOptions().prompt_key) {
      if (const Json* found = find(kMessages); found && is_messages(*found))
        return of_conversation(checked(*found, kMessages), kMessages, wanted);
      if (const Json* found = find(kConversations))
        return of_conversation(spoken(*found), kConversations, wanted);
      if (find(kInstruction)) return of_instruction(wanted);
    }
    fail_missing(o_.prompt_key, "prompt", "data.prompt_key", kPromptNames);
  }

 private:
  /// A list of ShareGPT as messages; some have these already.
  Json spoken(const Json& list) const {
    if (is_messages(list)) return checked(list, kConversations);
    Json messages = Json::array();
    for (const Json& m : list) {
      if (!m.is_object() || !m.contains("from") || !m.contains("value") || !m["value"].is_string())
        fail(Exit::data, {.what = "\"conversations\" holds something that is no message",
                          .where = where_,
                          .why = m.is_object() ? "its keys are " + keys_of(m) : "it is " + json_kind(m),
                          .fix = "each is {\"from\": \"human\" or \"gpt\", \"value\": text}"});
      const Json& from = m["from"];
      const auto* known = std::find_if(kSpeakers.begin(), kSpeakers.end(),
                                       [&](const Speaker& s) { return from == std::string(s.from); });
      if (known == kSpeakers.end())
        fail(Exit::data, {.what = "a message is from somebody unknown",
                          .where = where_,
                          .why = fmt::format("\"from\" is {}", dump_json_line(from).substr(0, 80)),
                          .fix = "\"from\" is human, gpt, system or tool"});
      messages.push_back({{"role", std::string(known->role)}, {"content", m["value"]}});
    }
    return checked(messages, kConversations);
  }

  LineParts of_prompt(const Json& prompt, bool wanted) const {
    LineParts parts{.keys = {o_.prompt_key}};
    if (o_.chat && is_messages(prompt))
      parts.messages = checked(prompt, o_.prompt_key);
    else
      parts.prompt = text(prompt, o_.prompt_key);
    if (!wanted) return parts;
    // A prompt beside the conversation that it begins: there is the answer.
    const Json* whole = o_.prompt_key == PromptOptions().prompt_key && o_.chat ? find(kMessages) : nullptr;
    if (whole && is_messages(*whole) && says(whole->back(), kAssistant) && response().is_null())
      return of_conversation(checked(*whole, kMessages), kMessages, wanted);
    parts.response = response();
    if (!parts.response.is_null()) return parts;
    if (parts.messages.is_null() || !says(parts.messages.back(), kAssistant)) fail_no_response();
    take_last(parts);
    return parts;
  }

  LineParts of_conversation(Json messages, const char* key, bool wanted) const {
    require_chat(key);
    LineParts parts{.messages = std::move(messages), .keys = {key}};
    const std::string system = text_or_none("system");
    if (!system.empty() && !says(parts.messages.front(), "system"))
      parts.messages.insert(parts.messages.begin(), Json{{"role", "system"}, {"content", system}});
    if (says(parts.messages.back(), kAssistant)) take_last(parts);
    if (!wanted) parts.response = nullptr;
    if (wanted && parts.response.is_null()) parts.response = required_response();
    const auto asks = [](const Json& m) { return !says(m, "system"); };
    if (std::any_of(parts.messages.begin(), parts.messages.end(), asks)) return parts;
    fail(Exit::data, {.what = fmt::format("\"{}\" has no prompt", key),
                      .where = where_,
                      .why = "the last message is the response, and none stands before it",
                      .fix = "correct or remove the line"});
  }

  LineParts of_instruction(bool wanted) const {
    LineParts parts{.keys = {kInstruction, "input"}};
    parts.prompt = text(*find(kInstruction), kInstruction);
    if (const std::string input = text_or_none("input"); !input.empty()) parts.prompt += "\n\n" + input;
    add_history(parts);
    if (!wanted) return parts;
    const bool renamed = o_.response_key != PromptOptions().response_key;
    const Json* output = renamed ? nullptr : find("output");
    parts.response = output ? Json(text(*output, "output")) : required_response();
    return parts;
  }

  /// What Alpaca's lines may have before their instruction.
  void add_history(LineParts& parts) const {
    const std::string system = text_or_none("system");
    const Json* history = find("history");
    const bool earlier = history && !history->is_null() && !history->empty();
    if (system.empty() && !earlier) return;
    require_chat(earlier ? "history" : "system");
    parts.messages = Json::array();
    const auto add = [&](const char* role, const Json& said) {
      parts.messages.push_back({{"role", role}, {"content", text(said, "history")}});
    };
    if (!system.empty()) parts.messages.push_back({{"role", "system"}, {"content", system}});
    for (const Json& turn : earlier ? *history : Json::array()) {
      if (!turn.is_array() || turn.size() != 2)
        fail(Exit::data, {.what = "\"history\" holds something that is no turn",
                          .where = where_,
                          .why = "it is " + json_kind(turn),
                          .fix = "each is [what was asked, what was answered]"});
      add("user", turn[0]), add(kAssistant, turn[1]);
    }
    parts.messages.push_back({{"role", "user"}, {"content", parts.prompt}});
  }

  static void take_last(LineParts& parts) {
    parts.response = parts.messages.back();
    parts.messages.erase(parts.messages.size() - 1);
  }
};

}  // namespace

const Json* find_key(const Json& record, const std::string& key) {
  if (const auto at = record.find(key); at != record.end()) return &*at;
  const size_t dot = key.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto outer = record.find(key.substr(0, dot));
  if (outer == record.end() || !outer->is_object()) return nullptr;
  return find_key(*outer, key.substr(dot + 1));
}

LineParts line_parts(const Json& record, const PromptOptions& options, const std::string& where,
                     bool with_response) {
  return LineReader(record, options, where).read(with_response);
}

int64_t count_turns(const Json& record, const PromptOptions& options, const std::string& where) {
  if (!options.chat || (record.contains("tokens") && !find_key(record, options.prompt_key))) return 1;
  const LineParts parts = line_parts(record, options, where, /*with_response=*/true);
  return 1 + std::count_if(parts.messages.begin(), parts.messages.end(),
                           [](const Json& message) { return says(message, kAssistant); });
}

void keep_turn(LineParts& parts, int64_t turn) {
  for (size_t i = 0; i < parts.messages.size(); ++i) {
    if (!says(parts.messages[i], kAssistant) || turn-- > 0) continue;
    parts.response = parts.messages[i];
    parts.messages.erase(parts.messages.begin() + static_cast<std::ptrdiff_t>(i), parts.messages.end());
    return;
  }
}

std::string response_text(const Json& record, const PromptOptions& options, const std::string& where) {
  const Line line(record, options, where);
  const Json response = line.response();
  if (response.is_string()) return response.get<std::string>();
  line.fail_no_response();
}

}  // namespace temper
