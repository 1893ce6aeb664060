#pragma once
// What a sampled turn says: thoughts, content, calls of tools. Texts are those of the sampled ids without the
// one that ended the turn; tags that are special tokens count only where the text shows them.
//
//   thoughts  at the start alone, up to the closing tag (where there is none: all of the turn), without line
//             breaks at both ends; content begins behind the line breaks that follow
//   calls     whole and right or not at all: what does not parse is content, tags too. White space around a
//   call
//             goes with it; content behind calls begins a new line of the content
//
// A text is looked at once, whatever it holds; what may begin a tag or a call is held back until that is
// known.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/agents/turns/turn_format.h"
#include "src/core/json.h"

namespace temper {

struct ToolCall {
  std::string name;
  Json arguments;              // an object
  std::string arguments_text;  // as it was said (json), else as one line
};

struct TurnText {
  std::string reasoning = {}, content = {};
  std::vector<ToolCall> calls = {};
};

/// `tools`: the request's list, null or empty where it has none (or tool_choice "none"): then there are no
/// calls. Values of xml_tags get their types from it. The turn has ended: at a length, too.
TurnText parse_turn(std::string_view text, const TurnFormat& format, const Json& tools);

/// The same, piece by piece: all deltas together are what parse_turn returns, wherever the text is cut.
class TurnStream {
 public:
  TurnStream(TurnFormat format, const Json& tools);
  ~TurnStream();
  TurnStream(TurnStream&&) noexcept;

  /// What is certain now and was not before; calls are finished ones. Within a delta thoughts come before
  /// content; of content and calls the order is not told, see TurnText.
  TurnText feed(std::string_view piece);
  TurnText end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// {"role": "assistant", "content", "reasoning_content"?, "tool_calls"?} as normal_messages has it;
/// `call_ids` has an id for each call.
Json turn_message(const TurnText& turn, const std::vector<std::string>& call_ids);

}  // namespace temper
