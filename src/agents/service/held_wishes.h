#pragma once
// Sampling that a program asks for in training, where the run's holds.

#include <string>
#include <vector>

#include "src/agents/doors/door.h"
#include "src/agents/service/session_results.h"
#include "src/rollout/request.h"

namespace temper {

struct HeldWish {
  std::string name;  // of the field
  /// "temperature 0.1, and the run's holds: rollout.temperature = 1"; empty: both are the same.
  std::string text;
};

/// One for each field that was given.
std::vector<HeldWish> held_wishes(const SamplingWish& wish, const GenerateOptions& run);
/// Counts them, and warns once of each field whose value is not the run's.
void count_held(const SamplingWish& wish, const GenerateOptions& run, SessionResults& results);

}  // namespace temper
