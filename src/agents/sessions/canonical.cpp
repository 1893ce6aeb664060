#include "src/agents/sessions/canonical.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/digest/hash.h"

namespace temper {
namespace {

void append_text(std::string& to, std::string_view text) {
  to += fmt::format("{}:", text.size());
  to += text;
}

void append_value(std::string& to, const Json& value);

void append_object(std::string& to, const Json& object) {
  std::vector<std::pair<std::string_view, const Json*>> members;
  for (const auto& [key, member] : object.items()) members.emplace_back(key, &member);
  std::sort(members.begin(), members.end());
  to += '{';
  for (const auto& [key, member] : members) append_text(to, key), append_value(to, *member);
  to += '}';
}

void append_value(std::string& to, const Json& value) {
  if (value.is_object()) return append_object(to, value);
  if (value.is_array()) {
    to += '[';
    for (const Json& element : value) append_value(to, element);
    to += ']';
  } else if (value.is_string()) {
    to += '"';
    append_text(to, value.get_ref<const std::string&>());
  } else if (value.is_number()) {
    const double number = value.get<double>();
    to += fmt::format("#{:x}", std::bit_cast<uint64_t>(number == 0 ? 0.0 : number));
  } else {
    to += value.is_null() ? 'n' : value.get<bool>() ? 't' : 'f';
  }
}

std::string_view text_of(const Json& message, const char* name) {
  const auto found = message.find(name);
  return found == message.end() || !found->is_string() ? std::string_view()
                                                       : found->get_ref<const std::string&>();
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\r\f\v";
  text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

/// All but the reasoning, which same_message may leave out.
void append_message(std::string& to, const Json& message) {
  const std::string_view role = text_of(message, "role"), content = text_of(message, "content");
  append_text(to, role);
  append_text(to, role == "assistant" ? trimmed(content) : content);
  append_text(to, text_of(message, "tool_call_id"));
  if (const auto calls = message.find("tool_calls"); calls != message.end())
    for (const Json& call : *calls) {
      append_text(to, text_of(call["function"], "name"));
      append_value(to, call["function"]["arguments"]);
    }
  to += '.';
}

}  // namespace

std::string canonical(const Json& value) {
  std::string text;
  append_value(text, value);
  return text;
}

uint64_t message_hash(const Json& message) {
  std::string text;
  append_message(text, message);
  return std::hash<std::string>()(text);
}

std::string ask_digest(const TurnAsk& ask) {
  std::string text = fmt::format("{}{} ", ask.trained, ask.max_new_tokens);
  for (const std::string& stop : ask.stop) append_text(text, stop);
  text += '.';
  if (ask.choice > 0) text += fmt::format("{} ", ask.choice);
  if (ask.prompt) {
    append_text(text,
                {reinterpret_cast<const char*>(ask.prompt->data()), ask.prompt->size() * sizeof(int32_t)});
    return digest_hex(text.data(), std::ssize(text));
  }
  append_value(text, ask.tools);
  append_value(text, ask.arguments);
  for (const Json& message : ask.messages) {
    append_message(text, message);
    append_text(text, text_of(message, "reasoning_content"));
  }
  return digest_hex(text.data(), std::ssize(text));
}

}  // namespace temper
