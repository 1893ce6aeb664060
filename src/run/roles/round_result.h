#pragma once
// What rollout ranks tell each other after a round of a step: prompts whose samples earned all the same, and
// those that go on in the next step.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/rl/types.h"

namespace temper {

struct RoundResult {
  int64_t replaced = 0;
  std::vector<Group> unfinished;
  bool cut = false;  // by a stop
};

std::string round_to_bytes(const RoundResult& round);
/// Adds what another rank's bytes say.
void add_round(std::string_view bytes, RoundResult& all);

}  // namespace temper
