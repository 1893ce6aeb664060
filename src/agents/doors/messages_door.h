#pragma once
// POST /v1/messages: Anthropic's protocol, whole and as a stream, with tools and thoughts.
// Sources: Anthropic's reference, and what its client and Claude Code were seen to need.

#include "src/agents/doors/door.h"

namespace temper {

class MessagesDoor : public Door {
 public:
  DoorRequest read(const Json& body, const DoorRules& rules) const override;
  std::string answer(const DoorRequest& request, const DoorAnswer& answer) const override;
  std::unique_ptr<DoorStream> stream(const DoorRequest& request, const DoorAnswer& head) const override;
  std::string error(const DoorError& error) const override;
};

}  // namespace temper
