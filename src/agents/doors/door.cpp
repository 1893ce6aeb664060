#include "src/agents/doors/door.h"

namespace temper {

std::vector<std::string> SamplingWish::names() const {
  std::vector<std::string> names;
  const auto add = [&](const char* name, bool given) {
    if (given) names.push_back(name);
  };
  add("temperature", temperature.has_value());
  add("top_p", top_p.has_value());
  add("top_k", top_k.has_value());
  add("min_p", min_p.has_value());
  add("repetition_penalty", repetition_penalty.has_value());
  add("presence_penalty", presence_penalty.has_value());
  add("frequency_penalty", frequency_penalty.has_value());
  add("logit_bias", !logit_bias.empty());
  add("min_tokens", min_new_tokens.has_value());
  return names;
}

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
