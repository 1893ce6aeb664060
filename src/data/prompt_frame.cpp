#include "src/data/prompt_frame.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr const char *kFirst = "first question", *kReply = "a reply", *kLast = "last question";

Json message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

std::string common_end(const std::string& a, const std::string& b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return std::string(ends.first.base(), a.end());
}

/// What stands before and after the first `text` of a rendering. Nothing where the template refuses the
/// messages.
std::optional<PromptFrame> around(const ChatTemplate& chat, const Json& variables, const Json& messages,
                                  std::string_view text) try {
  Json asked = variables;
  asked["messages"] = messages;
  const std::string whole = chat.render(asked);
  const size_t at = whole.find(text);
  if (at == std::string::npos) return std::nullopt;
  return PromptFrame{whole.substr(0, at), whole.substr(at + text.size())};
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

std::string_view PromptFrame::question(std::string_view prompt) const {
  if ((before.empty() && after.empty()) || !prompt.ends_with(after)) return prompt;
  const std::string_view rest = prompt.substr(0, prompt.size() - after.size());
  const size_t at = before.empty() ? 0 : rest.rfind(before);
  return at == std::string_view::npos ? prompt : rest.substr(at + before.size());
}

PromptFrame prompt_frame(const ChatTemplate& chat, const Json& variables) {
  const Json first = message("user", kFirst), reply = message("assistant", kReply);
  PromptFrame frame = around(chat, variables, Json::array({first}), kFirst).value_or(PromptFrame{});
  // Behind another turn there is no system prompt: what both have in common is a user's turn alone.
  const auto later = around(chat, variables, Json::array({first, reply, message("user", kLast)}), kLast);
  if (later)
    if (const std::string turn = common_end(frame.before, later->before); !turn.empty()) frame.before = turn;
  return frame;
}

}  // namespace temper
