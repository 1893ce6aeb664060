#pragma once
// What rollout ranks tell each other after a round of a step: prompts whose samples earned all the same, and
// those that go on in the next step.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/rl/types.h"
#include "src/rollout/engine.h"
#include "src/run/exchange/step_input.h"

namespace temper {

/// Prompts that go on in the next step.
struct LeftOver {
  std::vector<Group> groups;
  std::map<int64_t, int64_t> homes = {};  // data position -> team whose programs play them
};

struct RoundResult {
  int64_t replaced = 0;
  LeftOver left = {};
  bool cut = false;  // by a stop
};

/// What a rank says of its work in a step: rows, and seconds of generation and of waiting for rewards.
void add_work(StepNote& note, const RolloutCounters& counters, double generating, double rewarding);

std::string round_to_bytes(const RoundResult& round);
/// Adds what another rank's bytes say.
void add_round(std::string_view bytes, RoundResult& all);

}  // namespace temper
