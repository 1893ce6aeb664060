// The body of a request, in OpenAI's form or in Anthropic's. What is taken stays as it is, and every message
// is itself.

#include "src/agents/turns/anthropic.h"
#include "src/agents/turns/messages.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

void expect_normal(const Json& messages) {
  require(messages.is_array() && !messages.empty(), "no messages");
  require(normal_messages(messages).dump() == messages.dump(), "a normal form of the normal form");
  for (const Json& message : messages)
    require(same_message(message, message), "a message that is not itself");
}

}  // namespace

void fuzz(std::string_view input) {
  takes([&] {
    const Json body = parse_json(input, "body", {.depth = 64, .bytes = 1 << 20});
    takes([&] { expect_normal(normal_messages(body.is_object() ? body.value("messages", Json()) : body)); });
    const Json chat = anthropic::chat_request(body);
    expect_normal(chat["messages"]);
  });
}

}  // namespace temper
