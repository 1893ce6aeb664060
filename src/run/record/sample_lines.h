#pragma once
// Samples of a step for people, a line each: the end of the prompt, the response, the answer, the reward.

#include <span>
#include <string>
#include <vector>

#include "src/rl/types.h"

namespace temper {

/// `count` of them at most, of groups spread over the step. Line ends and quotes are escaped, long texts cut.
std::vector<std::string> sample_lines(std::span<const Group> groups, int64_t step, int64_t count);

}  // namespace temper
