// A turn of a model: its first byte says how turns are said, its second where the text is cut into pieces.
// The pieces say what the whole says, and what is no call is not lost.

#include "src/agents/turns/anthropic.h"
#include "src/agents/turns/messages.h"
#include "src/agents/turns/turn_text.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

void add(TurnText& all, TurnText delta) {
  all.reasoning += delta.reasoning;
  all.content += delta.content;
  for (ToolCall& call : delta.calls) all.calls.push_back(std::move(call));
}

}  // namespace

void fuzz(std::string_view input) {
  if (input.size() < 2) return;
  const auto how = static_cast<uint8_t>(input[0]), step = static_cast<uint8_t>(input[1]);
  const std::string_view text = input.substr(2);
  TurnFormat format{.calls = static_cast<CallSyntax>(how % 4)};
  if (how & 4) format.think_open = "<think>", format.think_close = "</think>", format.prompt_opens = how & 8;
  const Json tools =
      Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
      "properties": {"n": {"type": "integer"}, "l": {"type": ["array", "null"]}, "t": {"type": "string"}}}}}])");
  const TurnText whole = parse_turn(text, format, tools);
  TurnStream stream(format, tools);
  TurnText pieces;
  for (size_t i = 0, n = step; i < text.size(); i += n, n = (n * 7 + 3) % 31 + 1)
    add(pieces, stream.feed(text.substr(i, n)));
  add(pieces, stream.end());
  require(pieces.reasoning == whole.reasoning && pieces.content == whole.content,
          "pieces say something else");
  require(pieces.calls.size() == whole.calls.size(), "pieces call otherwise");
  require(whole.reasoning.size() + whole.content.size() <= text.size() + whole.calls.size(),
          "more text than there was");
  std::vector<std::string> ids;
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    const ToolCall& call = whole.calls[i];
    require(call.arguments.is_object() && !call.name.empty(), "a call of nothing");
    require(call.arguments_text == pieces.calls[i].arguments_text, "pieces have other arguments");
    require(same_value(parse_json(call.arguments_text, "arguments"), call.arguments),
            "arguments and their text differ");
    ids.push_back(std::to_string(i));
  }
  const Json message = turn_message(whole, ids);
  require(same_message(message, normal_messages(Json::array({message}))[0]), "a message that is not normal");
  anthropic::content_blocks(whole, ids);
}

}  // namespace temper
