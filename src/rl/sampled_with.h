#pragma once
// Which weights the tokens of a step were sampled with.

#include <cstdint>
#include <optional>
#include <span>

#include "src/rl/types.h"

namespace temper {

/// Tokens, and those of other weights than `version`.
struct TokensByWeights {
  int64_t all = 0, other = 0;
};
TokensByWeights off_policy_tokens(const Trajectory& t, int64_t version);

/// The version of the weights that sampled a response token; nothing where versions are not known.
std::optional<int64_t> version_of(const Response& response, int64_t token);

/// The oldest version of the weights that any token was generated with; `current` when nothing is known.
int64_t oldest_version(std::span<const Trajectory* const> all, int64_t current);

}  // namespace temper
