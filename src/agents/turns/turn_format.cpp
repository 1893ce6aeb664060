#include "src/agents/turns/turn_format.h"

#include <optional>
#include <string_view>

#include "src/core/check.h"
#include "src/data/prompt_builder.h"

namespace temper {
namespace {

constexpr const char *kQuestion = "probe question", *kAnswer = "probe answer", *kThought = "probe thought",
                     *kTool = "probe_tool", *kKey = "probe_key", *kValue = "probe value";
constexpr std::string_view kWhite = " \t\n\r";

Json user() { return {{"role", "user"}, {"content", kQuestion}}; }
Json assistant(const std::string& content) { return {{"role", "assistant"}, {"content", content}}; }

Json tools() {
  return Json::parse(std::string_view(R"([{"type": "function", "function": {
      "name": "probe_tool", "description": "A probe.", "parameters": {"type": "object", "properties": {
      "probe_key": {"type": "string", "description": "A key."}}, "required": ["probe_key"]}}}])"));
}

Json call(const Json& arguments) {
  Json message = assistant("");
  message["tool_calls"] = Json::array({{{"id", "call00001"},
                                        {"type", "function"},
                                        {"function", {{"name", kTool}, {"arguments", arguments}}}}});
  return message;
}

std::string_view trimmed_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhite) + 1);  // npos + 1 = 0
}
std::string_view trimmed_begin(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kWhite), text.size()));
}

/// Asks a template.
class Probe {
 public:
  Probe(const ChatTemplate& chat, const Tokenizer& tokenizer, const Json& arguments)
      : chat_(chat), tokenizer_(tokenizer), arguments_(arguments) {}

  TurnFormat format() const {
    TurnFormat found;
    find_thoughts(found);
    find_calls(found);
    return found;
  }

 private:
  /// What stands behind the question; nullopt: the template refuses the messages, or does not show it.
  std::optional<std::string> behind(const Json& messages, const Json& tools, bool generation_prompt) const {
    const auto whole = rendered(messages, tools, generation_prompt);
    const size_t at = whole ? whole->rfind(kQuestion) : std::string::npos;
    if (at == std::string::npos) return std::nullopt;
    return whole->substr(at + std::string_view(kQuestion).size());
  }

  std::optional<std::string> rendered(const Json& messages, const Json& tools, bool generation_prompt) const
      try {
    Json variables = template_variables(tokenizer_, messages, generation_prompt, arguments_);
    if (!tools.is_null()) variables["tools"] = tools;
    return chat_.render(variables);
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    return std::nullopt;
  }

  void find_thoughts(TurnFormat& found) const {
    Json thinking = assistant(kAnswer);
    thinking["reasoning_content"] = kThought;
    if (const auto shown = behind(Json::array({user(), thinking}), nullptr, false)) read_tags(*shown, found);
    const auto prompt = behind(Json::array({user()}), nullptr, true);
    if (found.think_open.empty() &&
        ((prompt && trimmed_end(*prompt).ends_with("<think>")) || drops_thoughts()))
      found.think_open = "<think>", found.think_close = "</think>";
    if (found.think_open.empty() || !prompt) return;
    const size_t open = prompt->rfind(found.think_open), close = prompt->rfind(found.think_close);
    found.prompt_opens = open != std::string::npos && (close == std::string::npos || close < open);
  }

  /// From a thought and what stands around it.
  static void read_tags(std::string_view shown, TurnFormat& found) {
    const size_t at = shown.find(kThought);
    if (at == std::string_view::npos) return;
    const std::string_view before = trimmed_end(shown.substr(0, at));
    const std::string_view after = trimmed_begin(shown.substr(at + std::string_view(kThought).size()));
    if (before.empty() || after.empty()) return;
    const bool angle = before.ends_with('>');
    const size_t begin = before.rfind(angle ? '<' : '[');
    if (begin == std::string_view::npos || (!angle && !before.ends_with(']'))) return;
    const std::string open(before.substr(begin));
    const std::string close = fmt::format("{}/{}", open[0], open.substr(1));
    if (!after.starts_with(close)) return;
    found.think_open = open;
    found.think_close = close;
  }

  /// The template takes thoughts out of earlier answers.
  bool drops_thoughts() const {
    const Json said = assistant(fmt::format("<think>\n{}\n</think>\n\n{}", kThought, kAnswer));
    const auto shown = rendered(Json::array({user(), said, user()}), nullptr, true);
    return shown && shown->find(kAnswer) != std::string::npos && shown->find(kThought) == std::string::npos;
  }

  void find_calls(TurnFormat& found) const {
    const auto listed = rendered(Json::array({user()}), tools(), true);
    found.takes_tools = listed && listed->find(kTool) != std::string::npos;
    const Json given = found.takes_tools ? tools() : Json();
    const Json object{{kKey, kValue}};
    auto shown = call_shown(object, given);
    found.arguments_as_object = shown && shown->find(fmt::format("'{}'", kKey)) == std::string::npos;
    if (!found.arguments_as_object) shown = call_shown(dump_json_line(object), given);
    if (shown) found.calls = syntax_of(*shown, given);
  }

  /// A turn with a call, if it shows all of it.
  std::optional<std::string> call_shown(const Json& arguments, const Json& given) const {
    auto shown = behind(Json::array({user(), call(arguments)}), given, false);
    const auto shows = [&](const char* part) { return shown && shown->find(part) != std::string::npos; };
    return shows(kTool) && shows(kKey) && shows(kValue) ? shown : std::nullopt;
  }

  CallSyntax syntax_of(const std::string& shown, const Json& given) const {
    constexpr std::string_view kOpen = "<tool_call>";
    if (const size_t tag = shown.find(kOpen); tag != std::string::npos) {
      const std::string_view said = trimmed_begin(std::string_view(shown).substr(tag + kOpen.size()));
      if (shown.find("</tool_call>") == std::string::npos) return CallSyntax::none;
      if (said.starts_with("<function=")) return CallSyntax::xml_tags;
      return said.starts_with("{") ? CallSyntax::json_tags : CallSyntax::none;
    }
    // As it is, it stands where an answer would.
    const auto plain = behind(Json::array({user(), assistant(kAnswer)}), given, false);
    const size_t answer = plain ? plain->find(kAnswer) : std::string::npos, open = shown.find('{');
    if (answer == std::string::npos || open == std::string::npos) return CallSyntax::none;
    std::string_view before = std::string_view(shown).substr(0, open);
    constexpr std::string_view kTag = "<|python_tag|>";
    if (before.ends_with(kTag)) before.remove_suffix(kTag.size());
    const bool named =
        std::string_view(shown).substr(open).starts_with(fmt::format("{{\"name\": \"{}\"", kTool));
    return named && before == std::string_view(*plain).substr(0, answer) ? CallSyntax::json
                                                                         : CallSyntax::none;
  }

  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  const Json& arguments_;
};

}  // namespace

TurnFormat turn_format(const ChatTemplate& chat, const Tokenizer& tokenizer, const Json& arguments) {
  return Probe(chat, tokenizer, arguments).format();
}

}  // namespace temper
