#include "src/agents/doors/door.h"

namespace temper {

int64_t DoorAnswer::completion_tokens() const {
  int64_t tokens = 0;
  for (const DoorChoice& choice : choices) tokens += std::ssize(choice.response.tokens);
  return tokens;
}

std::string finish_of(const DoorChoice& choice) {
  if (choice.response.finish == FinishReason::length) return "length";
  return choice.said.calls.empty() ? "stop" : "tool_calls";
}

}  // namespace temper
