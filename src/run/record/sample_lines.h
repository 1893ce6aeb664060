#pragma once
// Samples of a step for people, a line each: the end of the question, the response, the answer, the reward.

#include <span>
#include <string>
#include <vector>

#include "src/data/prompt_frame.h"
#include "src/rl/types.h"

namespace temper {

/// `count` of them at most, of groups spread over the step. Line ends and quotes are escaped, long texts cut.
/// `frame`: what of a prompt is not the question.
std::vector<std::string> sample_lines(std::span<const Group> groups, const PromptFrame& frame, int64_t step,
                                      int64_t count);

}  // namespace temper
