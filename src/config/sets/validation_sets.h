#pragma once
// What a set of validation.data has: what it says itself, else what the section or the config says.

#include "src/config/config.h"

namespace temper {

/// Its name, or that of its file without the ending.
std::string name_of(const ValidationSet& set);
int64_t samples_of(const ValidationSet& set, const Config& config);
/// Empty: nothing is generated for the set (sft).
RewardConfig rewards_of(const ValidationSet& set, const Config& config);
/// The section rollout with what validation.rollout says over it, and over that what the set says.
RolloutConfig rollout_of(const ValidationSet& set, const Config& config);

}  // namespace temper
