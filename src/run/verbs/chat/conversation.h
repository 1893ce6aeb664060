#pragma once
// A conversation on a terminal: a line is a message, the answer is shown while it is generated, and the next
// prompt has all of it before, through the chat template. Ctrl-C stops an answer, which then is as long as it
// is; Ctrl-D ends. What the model says is shown without control characters (core/text/printable.h).

#include "src/data/chat_template.h"
#include "src/rollout/engine.h"

namespace temper {

struct ConversationParts {
  Ctx& ctx;
  Engine& engine;
  const Tokenizer& tokenizer;
  const ChatTemplate* chat;  // null: the folder has none, which is Exit::usage
  GenerateOptions options;
};

/// Until stdin ends. Answers go to stdout, the rest to stderr. Message n draws as prompt n of a file. Where
/// it has become longer than context and cache the oldest messages are left out.
void converse(const ConversationParts& parts);

}  // namespace temper
