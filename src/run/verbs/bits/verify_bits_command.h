#pragma once
// verify-bits: whether the log-probs that rollout reports and those that training computes are the same bits,
// for a model on this machine.

#include <span>

#include "src/run/verbs/bits/bits_pair.h"
#include "src/run/verbs/bits/products_cost.h"
#include "src/run/verbs/command_line.h"

namespace temper {

/// Exit::ok, or Exit::bits.
int run_verify_bits(const CommandLine& line);

/// Tells of every pair and of the cost on rank 0, as one JSON object or a line each and a verdict. Returns
/// the exit code.
int tell_bits(const BitsModel& model, std::span<const BitsFound> pairs,
              const std::optional<ProductsCost>& cost, Comm& world, bool json);

}  // namespace temper
