#pragma once
// How the model of a chat template says thoughts and calls of tools: found by rendering probes.

#include <string>

#include "src/data/chat_template.h"
#include "src/data/tokenizer/tokenizer.h"

namespace temper {

/// How a call is written:
///   json_tags  <tool_call>{"name": ..., "arguments": {...}}</tool_call>     (Hermes, Qwen2.5, Qwen3)
///   xml_tags   <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>
///              (Qwen3-Coder, Qwen3.5)
///   json       {"name": ..., "parameters": {...}}, first in the turn, perhaps behind <|python_tag|>   (Llama
///   3)
enum class CallSyntax { none, json_tags, xml_tags, json };

struct TurnFormat {
  std::string think_open = {}, think_close = {};  // empty: the template knows no thoughts
  bool prompt_opens = false;                      // the generation prompt ends within thoughts
  CallSyntax calls = CallSyntax::none;
  bool takes_tools = false;          // the template shows the tools, and calls in the history
  bool arguments_as_object = false;  // it wants the arguments of calls as values, not as text
};

/// `arguments`: variables of the template beside messages and tools, such as enable_thinking. Never fails
/// because a template refuses a probe.
TurnFormat turn_format(const ChatTemplate& chat, const Tokenizer& tokenizer, const Json& arguments);

}  // namespace temper
