#pragma once
// POST /inference/v1/generate: token ids in, token ids out. Sources: vLLM, renderers 0.1.12.

#include "src/agents/doors/door.h"

namespace temper {

class TokensDoor : public Door {
 public:
  DoorRequest read(const Json& body, const DoorRules& rules) const override;
  std::string answer(const DoorRequest& request, const DoorAnswer& answer) const override;
  /// Streams are refused by `read`.
  std::unique_ptr<DoorStream> stream(const DoorRequest& request, const DoorAnswer& head) const override;
  std::string error(const DoorError& error) const override;
};

}  // namespace temper
