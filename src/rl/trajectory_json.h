#pragma once
// Rollout files: one JSON object per response and line, written by every run and read by `train --replay`.
// Keys: step, group, sample, prompt_tokens, response_tokens, response_mask, logprobs | null,
// ref_logprobs | null, reward, raw_reward, reward_parts, advantage, policy_version [min, max] | null,
// finish_reason, prompt, response, answer; policy_versions [[version, tokens], ...] where there are several;
// teacher_logprobs and advantages, by token, where there are some; routes (rl/routes.h) where they were
// recorded. reward and raw_reward are both null where no reward could be found (Trajectory::excluded).
// Reading needs group, prompt_tokens, response_tokens and reward. Absent: the mask is ones, logprobs and
// ref_logprobs are unknown (empty), raw_reward = reward, sample = order in the group. Advantages are not
// taken over: the replaying run makes its own. Versions are taken as lags: of a line of step s, version v
// becomes v - (s - 1), 0 for the weights that the step began with; without step or policy_version they are
// unknown (empty). Log-probs at mask 0 may be null.

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/digest/file_digest.h"
#include "src/core/json.h"
#include "src/rl/routes.h"
#include "src/rl/types.h"

namespace temper {

Json trajectory_to_json(const Trajectory& trajectory, int64_t step);

/// What a rollout file may hold; 0 = no limit beyond the number type.
struct ReplayLimits {
  int64_t vocab_size = 0;      // token ids are below it
  int64_t context_tokens = 0;  // prompt + response tokens are at most this many
  RouteShape routes = {};      // of the model that takes them; without layers: of any
  bool needs_routes = false;   // every response has some
};

/// One line; Error(Exit::data) at `where` names the key and the value that is wrong.
Trajectory trajectory_from_json(const Json& line, const std::string& where, const ReplayLimits& limits);

/// A whole file, plain or packed by zstd: groups in ascending order of their number, samples likewise, both
/// renumbered from 0; data_position is the new group index. Empty lines are skipped: a step may have finished
/// no prompt (rollout.tokens_per_step), and then its file is empty. `held`: what the file held while it was
/// read.
std::vector<Group> read_rollouts(const std::string& path, const ReplayLimits& limits,
                                 FileDigest* held = nullptr);

/// Error(Exit::data) when none of the files holds a response.
void require_responses(const std::vector<std::string>& files);

}  // namespace temper
