#include "src/agents/turns/messages.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "src/agents/turns/request_error.h"

namespace temper {
namespace {

constexpr const char* kReasoning = "reasoning_content";
constexpr std::string_view kWhite = " \t\n\r\f\v";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhite) - begin + 1);
}

/// Null: the object lacks it, or has null.
const Json* member(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

[[noreturn]] void refuse_kind(const std::string& where, const char* wanted, const Json& found) {
  throw RequestError({.what = fmt::format("expected {}", wanted),
                      .where = where,
                      .why = "found " + json_kind(found),
                      .fix = "send messages in OpenAI's form"});
}

bool nests_deeper(const Json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  return std::any_of(value.begin(), value.end(), [&](const Json& v) { return nests_deeper(v, levels - 1); });
}

/// The value of a text that is JSON; others stay texts.
Json value_of(const std::string& text) try {
  if (trimmed(text).empty()) return Json::object();
  return parse_json(text, "arguments", {.depth = kArgumentDepth, .bytes = std::ssize(text)});
} catch (const Error&) {
  return text;
}

/// A message of a request, and where it stands.
class Reader {
 public:
  Reader(const Json& message, std::string where) : message_(message), where_(std::move(where)) {
    if (!message.is_object()) refuse_kind(where_, "an object", message);
  }

  Json normal() const {
    const std::string role = this->role();
    Json made{{"role", role}, {"content", content()}};
    if (role == "assistant") {
      if (auto said = reasoning()) append_member(made, kReasoning, *std::move(said));
      if (Json calls = this->calls(); !calls.empty()) append_member(made, "tool_calls", std::move(calls));
    }
    if (role == "tool")
      for (const char* name : {"tool_call_id", "name"})
        if (auto said = text(message_, name, where_)) append_member(made, name, *std::move(said));
    return made;
  }

 private:
  static std::optional<std::string> text(const Json& object, const char* name, const std::string& where) {
    const Json* found = member(object, name);
    if (!found) return std::nullopt;
    if (!found->is_string()) refuse_kind(fmt::format("{}.{}", where, name), "a text", *found);
    return found->get<std::string>();
  }

  std::string role() const {
    const auto said = text(message_, "role", where_);
    if (said == "developer") return "system";
    for (const char* known : {"system", "user", "assistant", "tool"})
      if (said == known) return known;
    throw RequestError({.what = said ? "an unknown role" : "a message has no role",
                        .where = where_ + ".role",
                        .why = said ? fmt::format("found \"{}\"", said->substr(0, 80)) : "it is missing",
                        .fix = "role is system, developer, user, assistant or tool"});
  }

  std::string content() const {
    const Json* found = member(message_, "content");
    if (!found) return "";
    const std::string where = where_ + ".content";
    if (found->is_string()) return found->get<std::string>();
    if (!found->is_array()) refuse_kind(where, "a text or a list of texts", *found);
    std::string joined;
    for (size_t i = 0; i < found->size(); ++i)
      joined += (i == 0 ? "" : "\n") + part((*found)[i], fmt::format("{}[{}]", where, i));
    return joined;
  }

  static std::string part(const Json& part, const std::string& where) {
    if (part.is_string()) return part.get<std::string>();
    if (!part.is_object()) refuse_kind(where, "a text part", part);
    const std::string type = text(part, "type", where).value_or("nothing");
    if (type == "text") return text(part, "text", where).value_or("");
    throw RequestError({.what = "content that is no text",
                        .where = where + ".type",
                        .why = fmt::format("found \"{}\", and the model reads texts", type.substr(0, 80)),
                        .fix = "send parts of type text"});
  }

  std::optional<std::string> reasoning() const {
    for (const char* name : {kReasoning, "reasoning", "thinking"})
      if (auto said = text(message_, name, where_)) return said;
    return std::nullopt;
  }

  Json calls() const {
    Json made = Json::array();
    const Json* found = member(message_, "tool_calls");
    if (!found) return made;
    const std::string where = where_ + ".tool_calls";
    if (!found->is_array()) refuse_kind(where, "a list of calls", *found);
    for (size_t i = 0; i < found->size(); ++i)
      made.push_back(call((*found)[i], fmt::format("{}[{}]", where, i)));
    return made;
  }

  static Json call(const Json& call, const std::string& where) {
    if (!call.is_object()) refuse_kind(where, "a call", call);
    const Json* function = member(call, "function");
    if (!function || !function->is_object())
      refuse_kind(where + ".function", "an object", function ? *function : Json());
    const auto name = text(*function, "name", where + ".function");
    if (!name || name->empty()) refuse_kind(where + ".function.name", "the name of a tool", Json(nullptr));
    Json arguments = Json::object();
    if (const Json* given = member(*function, "arguments"))
      arguments = given->is_string() ? value_of(given->get<std::string>()) : *given;
    if (nests_deeper(arguments, kArgumentDepth))
      throw RequestError({.what = "arguments of a call nest too deep",
                          .where = where + ".function.arguments",
                          .why = fmt::format("the limit is {} levels", kArgumentDepth),
                          .fix = "send flatter arguments"});
    Json made = Json::object();
    if (auto id = text(call, "id", where)) append_member(made, "id", *std::move(id));
    append_member(made, "type", "function");
    append_member(made, "function", {{"name", *name}, {"arguments", std::move(arguments)}});
    return made;
  }

  const Json& message_;
  std::string where_;
};

std::vector<std::pair<std::string_view, const Json*>> sorted_members(const Json& object) {
  std::vector<std::pair<std::string_view, const Json*>> members;
  for (const auto& [key, value] : object.items()) members.emplace_back(key, &value);
  std::sort(members.begin(), members.end());
  return members;
}

std::string_view text_of(const Json& message, const char* name) {
  const Json* found = member(message, name);
  return found ? std::string_view(found->get_ref<const std::string&>()) : std::string_view();
}

bool same_calls(const Json& known, const Json& asked) {
  const Json none = Json::array();
  const Json *a = member(known, "tool_calls"), *b = member(asked, "tool_calls");
  if (!a) a = &none;
  if (!b) b = &none;
  return std::equal(a->begin(), a->end(), b->begin(), b->end(), [](const Json& x, const Json& y) {
    const Json &f = x["function"], &g = y["function"];
    return f["name"] == g["name"] && same_value(f["arguments"], g["arguments"]);
  });
}

}  // namespace

Json normal_messages(const Json& messages) {
  if (!messages.is_array()) refuse_kind("messages", "a list of messages", messages);
  if (messages.empty())
    throw RequestError({.what = "there is no message",
                        .where = "messages",
                        .why = "the list is empty",
                        .fix = "send at least one message"});
  Json made = Json::array();
  bool leading = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = Reader(messages[i], fmt::format("messages[{}]", i)).normal();
    leading = leading && message["role"] == "system";
    if (leading && i > 0)
      made[0]["content"].get_ref<std::string&>() += "\n\n" + message["content"].get<std::string>();
    else
      made.push_back(std::move(message));
  }
  return made;
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    const auto ours = sorted_members(a), theirs = sorted_members(b);
    return std::equal(
        ours.begin(), ours.end(), theirs.begin(), theirs.end(),
        [](const auto& x, const auto& y) { return x.first == y.first && same_value(*x.second, *y.second); });
  }
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_value);
  return a == b;
}

bool same_message(const Json& known, const Json& asked) {
  if (known["role"] != asked["role"]) return false;
  const bool assistant = known["role"] == "assistant";
  const std::string_view ours = text_of(known, "content"), theirs = text_of(asked, "content");
  if (assistant ? trimmed(ours) != trimmed(theirs) : ours != theirs) return false;
  if (text_of(known, "tool_call_id") != text_of(asked, "tool_call_id")) return false;
  if (member(asked, kReasoning) && trimmed(text_of(known, kReasoning)) != trimmed(text_of(asked, kReasoning)))
    return false;
  return same_calls(known, asked);
}

}  // namespace temper
