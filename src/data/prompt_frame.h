#pragma once
// What a chat template puts around the last thing that a user says: with it a prompt can be shown as the
// question that it asks.

#include <string>
#include <string_view>

#include "src/data/chat_template.h"

namespace temper {

struct PromptFrame {
  std::string before, after;  // empty: nothing is around it

  /// The part of a prompt behind the last `before` and in front of `after`, which ends it; all of a prompt
  /// that is not framed so.
  std::string_view question(std::string_view prompt) const;
};

/// `variables`: those of a rendering besides its messages. No frame where the template cannot be asked.
PromptFrame prompt_frame(const ChatTemplate& chat, const Json& variables);

}  // namespace temper
