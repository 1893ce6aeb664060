#include "src/agents/turns/turn_cut.h"

#include <algorithm>
#include <string_view>

#include "src/agents/turns/request_error.h"
#include "src/core/text/short_number.h"
#include "src/data/prompt_builder.h"

namespace temper {
namespace {

constexpr const char* kMarker = "temper-marker-of-a-turn";
constexpr std::string_view kWhite = " \t\n\r";

bool no_tools(const Json& tools) { return !tools.is_array() || tools.empty(); }

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

/// Calls of `answer` with the marker in the arguments of the last one; its text where it calls nothing.
Json marked(const Json& answer) {
  Json made = message("assistant", answer.contains("tool_calls") ? "" : kMarker);
  if (!answer.contains("tool_calls")) return made;
  Json calls = answer["tool_calls"];
  for (Json& call : calls) call["function"]["arguments"] = {{"of", "another"}};
  calls.back()["function"]["arguments"] = {{"of", kMarker}};
  append_member(made, "tool_calls", std::move(calls));
  return made;
}

/// Two histories that end with the marked answer.
std::vector<Json> histories(const Json& answer) {
  const Json turn = marked(answer);
  Json thoughtful = message("assistant", "An earlier answer.");
  thoughtful["reasoning_content"] = "Some thought.";
  return {Json::array({message("user", "A question."), turn}),
          Json::array({message("user", "A question."), std::move(thoughtful), message("user", "Another one."),
                       turn})};
}

/// A small one is as good as those of a request: what stands behind a turn knows only whether there are any.
const Json& probe_tools() {
  static const Json tools = Json::parse(std::string_view(R"([{"type": "function", "function": {
      "name": "probe_tool", "description": "A probe.", "parameters": {"type": "object", "properties": {
      "of": {"type": "string", "description": "What."}}, "required": ["of"]}}}])"));
  return tools;
}

std::string_view without_white(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kWhite), text.size()));
}

/// Arguments of calls as the template wants them.
Json with_arguments(Json messages, bool as_object) {
  if (as_object) return messages;
  for (Json& m : messages)
    if (const auto calls = m.find("tool_calls"); calls != m.end())
      for (Json& call : *calls) {
        Json& arguments = call["function"]["arguments"];
        if (!arguments.is_string()) arguments = dump_json_line(arguments);
      }
  return messages;
}

/// New messages of each kind, to see which have a cut. The calls that the tools answer are those of
/// probe_answer.
Json probe(const std::vector<const char*>& roles) {
  Json made = Json::array();
  for (const char* role : roles) {
    Json one = message(role, fmt::format("probe {}", made.size()));
    if (one["role"] == "tool") {
      one["tool_call_id"] = fmt::format("call0000{}", made.size());
      one["name"] = "probe_tool";
    }
    made.push_back(std::move(one));
  }
  return made;
}

Json probe_answer(const Json& messages) {
  Json calls = Json::array(), answer = message("assistant", "");
  for (const Json& m : messages)
    if (m["role"] == "tool")
      calls.push_back({{"id", m["tool_call_id"]},
                       {"type", "function"},
                       {"function", {{"name", "probe_tool"}, {"arguments", {{"of", "it"}}}}}});
  if (!calls.empty()) append_member(answer, "tool_calls", std::move(calls));
  return answer;
}

}  // namespace

TurnCut::TurnCut(const Tokenizer& tokenizer, const ChatTemplate& chat, Json chat_arguments)
    : tokenizer_(tokenizer),
      chat_(chat),
      chat_arguments_(std::move(chat_arguments)),
      format_(turn_format(chat, tokenizer, chat_arguments_)) {}

Json TurnCut::arguments_over(const Json& arguments) const {
  Json all = chat_arguments_;
  if (arguments.is_object())
    for (const auto& [key, value] : arguments.items()) all[key] = value;
  return all;
}

TurnFormat TurnCut::format(const Json& arguments) const {
  if (!arguments.is_object() || arguments.empty()) return format_;
  return turn_format(chat_, tokenizer_, arguments_over(arguments));
}

std::string TurnCut::rendered(const Json& messages, const Json& tools, const Json& arguments,
                              bool generation_prompt) const {
  Json all = arguments_over(arguments);
  if (!no_tools(tools)) all["tools"] = tools;
  const Json shown = with_arguments(messages, format_.arguments_as_object);
  return chat_.render(template_variables(tokenizer_, shown, generation_prompt, all));
}

std::optional<std::string> TurnCut::behind_marker(const Json& messages, const Json& tools,
                                                  const Json& arguments, bool generation_prompt) const try {
  const std::string text = rendered(messages, tools, arguments, generation_prompt);
  const size_t at = text.find(kMarker);
  if (at == std::string::npos) return std::nullopt;
  return text.substr(at + std::string_view(kMarker).size());
} catch (const Error& e) {
  if (e.code() != Exit::data) throw;
  return std::nullopt;
}

std::string TurnCut::whole_text(const Json& messages, const Json& tools, const Json& arguments) const try {
  return rendered(messages, tools, arguments, /*generation_prompt=*/true);
} catch (const Error& e) {
  if (e.code() != Exit::data) throw;
  throw RequestError({.what = "the chat template refuses the messages",
                      .where = "messages",
                      .why = e.problem().what + ": " + e.problem().why,
                      .fix = "send messages that this model's template takes"});
}

std::vector<int32_t> TurnCut::whole(const Json& messages, const Json& tools, const Json& arguments) const {
  return tokenizer_.encode(whole_text(messages, tools, arguments), /*add_special=*/false);
}

/// Where the probe does not show any, these messages still may.
void TurnCut::require_tools_shown(const Json& messages, const Json& tools, const Json& arguments) const {
  if (no_tools(tools) || format(arguments).takes_tools) return;
  if (whole_text(messages, tools, arguments) != whole_text(messages, nullptr, arguments)) return;
  throw RequestError(
      {.what = "the model's chat template has no place for tools",
       .where = "tools",
       .why = fmt::format("{} would be left out of the prompt", count_text(std::ssize(tools), "tool")),
       .fix = "leave `tools` out and describe them in the system message, or use a model whose "
              "template shows tools"});
}

bool TurnCut::begins_special(std::string_view text) const {
  const auto ids = tokenizer_.encode(text.substr(0, text.find_first_of(kWhite)), /*add_special=*/false);
  return !ids.empty() && tokenizer_.is_special(ids.front());
}

std::optional<std::string> TurnCut::last_turn(const Json& answer, const Json& tools,
                                              const Json& arguments) const {
  return behind_marker(histories(answer).front(), tools, arguments, /*generation_prompt=*/false);
}

std::optional<TurnCut::Cut> TurnCut::begin_at_end(const std::string& last, const std::string& plain,
                                                  std::string text) const {
  // Behind the marker in arguments, the rest of the call.
  if (!last.ends_with(plain)) return std::nullopt;
  const std::string_view rest_of_call = std::string_view(last).substr(0, last.size() - plain.size());
  if (!text.starts_with(rest_of_call)) return std::nullopt;
  text.erase(0, rest_of_call.size());
  if (!begins_special(without_white(plain))) return Cut{.text = std::move(text)};
  text.erase(0, text.size() - without_white(text).size());
  if (!begins_special(text)) return std::nullopt;
  return Cut{.text = std::move(text), .has_end = true};
}

std::optional<TurnCut::Cut> TurnCut::cut(const Json& answer, const Json& new_messages, const Json& tools,
                                         const Json& arguments) const {
  const Json some = no_tools(tools) ? Json() : probe_tools();
  const Json says = message("assistant", "");
  const auto last = last_turn(answer, some, arguments);
  const bool calls = answer.contains("tool_calls");
  if (!last && calls) return cut(says, new_messages, tools, arguments);  // the template shows no calls
  const auto plain = calls ? last_turn(says, some, arguments) : last;
  if (!last || !plain) return std::nullopt;
  std::optional<std::string> text;
  for (Json& history : histories(answer)) {
    for (const Json& m : new_messages) history.push_back(m);
    auto found = behind_marker(history, some, arguments, /*generation_prompt=*/true);
    if (!found || (text && *found != *text)) return std::nullopt;
    text = std::move(found);
  }
  return begin_at_end(*last, *plain, *std::move(text));
}

std::optional<std::vector<int32_t>> TurnCut::behind(const Json& answer, const Json& new_messages,
                                                    const Json& tools, const Json& arguments,
                                                    const TurnEnd& end) const {
  const auto found = cut(answer, new_messages, tools, arguments);
  if (!found) return std::nullopt;
  std::vector<int32_t> ids = tokenizer_.encode(found->text, /*add_special=*/false);
  const bool ended = end.by_stop_id && end.last_sampled && tokenizer_.is_special(*end.last_sampled);
  if (ended && !ids.empty() && (found->has_end || ids.front() == *end.last_sampled)) ids.erase(ids.begin());
  return ids;
}

std::vector<std::string> TurnCut::kinds_without_cut() const {
  struct Kind {
    const char* name;
    std::vector<const char*> roles;
  };
  const Kind kinds[] = {{"user", {"user"}},
                        {"tool", {"tool"}},
                        {"two tools", {"tool", "tool"}},
                        {"tool, user", {"tool", "user"}},
                        {"system, user", {"system", "user"}},
                        {"user, user", {"user", "user"}}};
  std::vector<std::string> without;
  for (const Kind& kind : kinds) {
    const Json asked = probe(kind.roles);
    const auto found = cut(probe_answer(asked), asked, format_.takes_tools ? probe_tools() : Json(), nullptr);
    const auto shows = [&](const Json& m) {
      return found->text.find(m["content"].get_ref<const std::string&>()) != std::string::npos;
    };
    if (!found || !std::all_of(asked.begin(), asked.end(), shows)) without.emplace_back(kind.name);
  }
  return without;
}

}  // namespace temper
