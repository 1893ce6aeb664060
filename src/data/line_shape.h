#pragma once
// What of a data line is the prompt and what the response, in the shapes that data come in:
//   {"prompt": text, "response": text}, with the keys of the options
//   {"prompt": text or messages, "completion": text or one message of the assistant}     (TRL)
//   {"messages": [{"role", "content"}, ...]}
//   {"conversations": [{"from": "human" | "gpt" | "system" | "tool", "value"}, ...], "system"}     (ShareGPT)
//   {"instruction", "input", "output", "system", "history": [[text, text], ...]}     (Alpaca)
// The keys of the options come first; the others are looked for where prompt_key (or response_key) has its
// default and is not in the line. Of a conversation the last message is the response, if the assistant says
// it; behind messages_key only where a response is wanted.

#include <string>
#include <vector>

#include "src/core/json.h"

namespace temper {

struct PromptOptions;

struct LineParts {
  Json messages = nullptr;             // of the prompt; null: it is a text
  std::string prompt = {};             // without messages
  Json response = nullptr;             // a text or a message; null: none was wanted
  std::vector<std::string> keys = {};  // of the line, that these are made of
};

/// "a.b" is that key, or else b inside of a. Null: neither is there.
const Json* find_key(const Json& record, const std::string& key);

/// Without `chat` both are texts. Error(Exit::data) at `where`, with the keys of the line and the key of the
/// config to set, when there is no prompt, or no response and one is wanted.
LineParts line_parts(const Json& record, const PromptOptions& options, const std::string& where,
                     bool with_response);

/// How many turns of the assistant a line has, with its response.
int64_t count_turns(const Json& record, const PromptOptions& options, const std::string& where);
/// Turn number `turn` of parts with a response becomes their response; what follows it is left out.
void keep_turn(LineParts& parts, int64_t turn);

/// The text of the response of a line whose prompt is a list of token ids.
std::string response_text(const Json& record, const PromptOptions& options, const std::string& where);

}  // namespace temper
