#pragma once
// Sessions that their programs play to the end, and that are left out nevertheless.

#include <cstdint>
#include <map>
#include <string>

#include "src/agents/sessions/end_reason.h"

namespace temper {

class LeftOut {
 public:
  /// For `reason` no_reward or no_request.
  explicit LeftOut(EndReason reason) : reason_(reason) {}
  /// Looks at the metrics of a step. Returns the warning, once: in the first step that has such a session.
  std::string look(int64_t step, const std::map<std::string, double>& metrics);

 private:
  EndReason reason_;
  bool told_ = false;
};

}  // namespace temper
