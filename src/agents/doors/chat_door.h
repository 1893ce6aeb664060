#pragma once
// POST /v1/chat/completions: OpenAI's protocol of messages, whole and as a stream, with tools and thoughts.
// Sources: OpenAI's reference, vLLM (return_token_ids, token_ids, prompt_token_ids).

#include "src/agents/doors/door.h"

namespace temper {

class ChatDoor : public Door {
 public:
  /// The tokenizer outlives it.
  explicit ChatDoor(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  DoorRequest read(const Json& body, const DoorRules& rules) const override;
  std::string answer(const DoorRequest& request, const DoorAnswer& answer) const override;
  std::unique_ptr<DoorStream> stream(const DoorRequest& request, const DoorAnswer& head) const override;
  std::string error(const DoorError& error) const override;

 private:
  const Tokenizer& tokenizer_;
};

}  // namespace temper
