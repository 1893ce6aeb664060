#pragma once
// What a turn's noise, order and ids follow from: never from when its request came.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/agents/sessions/session.h"

namespace temper {

/// Digest (32 digits) of the ids of a turn's prompt and of what else the request asked: trained or not,
/// limit, stops. Turns with equal ones are told apart by their repetition.
std::string request_digest(std::span<const int32_t> prompt, const TurnAsk& ask);

/// The seed of a turn's noise: a digest of the run's, the request's digest and its repetition.
uint64_t turn_seed(uint64_t run_seed, const std::string& request, int32_t repetition);

/// Turn::key.
std::string turn_key(const SessionSetup& setup, const std::string& request, int32_t repetition);

/// Session::call_id.
std::string call_id_of(const std::string& key, size_t index);

}  // namespace temper
