#pragma once
// POST /v1/completions: texts or ids in, texts out; with `echo` and `logprobs` also what the model thinks of
// the prompt, which log-likelihood tasks of lm-eval want. Sources: OpenAI's reference, lm-eval 0.4.13, vLLM.

#include "src/agents/doors/door.h"

namespace temper {

class CompletionsDoor : public Door {
 public:
  /// The tokenizer outlives it.
  explicit CompletionsDoor(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  DoorRequest read(const Json& body, const DoorRules& rules) const override;
  std::string answer(const DoorRequest& request, const DoorAnswer& answer) const override;
  std::unique_ptr<DoorStream> stream(const DoorRequest& request, const DoorAnswer& head) const override;
  std::string error(const DoorError& error) const override;

 private:
  Json logprobs_of(const DoorRequest& request, const DoorChoice& choice) const;

  const Tokenizer& tokenizer_;
};

}  // namespace temper
