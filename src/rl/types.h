#pragma once
// A completion and the group of completions of one prompt: what rollouts make, rewards and advantages fill,
// trainers consume and rollout files show. Plain data; numbers are double so that an fp64 run loses nothing
// (fp32 values are exact in double).
// Invariants: response_mask is as long as response_tokens; logprobs and ref_logprobs are that long or empty
// (unknown); the counts of policy_versions sum to the response length when they are known.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

/// `unfinished`: cut by the token budget of a step, goes on in the next one; never in a group that is
/// trained.
enum class FinishReason { stop, length, unfinished };

inline std::string_view finish_reason_name(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : reason == FinishReason::length ? "length" : "unfinished";
}

struct Trajectory {
  int64_t data_position = 0;  // (data_position, sample) identifies the completion in a run
  int32_t group = 0;          // index of the group in the step
  int32_t sample = 0;         // index in the group
  std::vector<int32_t> prompt_tokens;
  std::vector<int32_t> response_tokens;
  std::vector<uint8_t> response_mask;  // 1 = trained (model-generated) token
  std::vector<double> logprobs;        // of the policy that sampled; empty = unknown
  std::vector<double> ref_logprobs;    // empty = no reference
  /// Of the weights before the first update of the step, where others sampled; the trainer fills it. Empty:
  /// as logprobs; NaN: those of the update itself.
  std::vector<double> old_logprobs;
  std::vector<std::pair<int64_t, int32_t>> policy_versions;  // runs of (version, number of tokens)
  FinishReason finish_reason = FinishReason::stop;
  std::string prompt;
  std::string response;  // without special tokens
  std::string answer;
  double raw_reward = 0;  // weighted sum of the task rewards; filters use it
  double reward = 0;      // raw_reward plus shaping; advantages use it
  std::vector<std::pair<std::string, double>> reward_parts;  // unweighted, in the order of reward.functions
  double advantage = 0;

  /// n_i: response tokens that enter the loss.
  int64_t counted_tokens() const {
    int64_t count = 0;
    for (uint8_t m : response_mask) count += m != 0;
    return count;
  }
};

/// All completions of one prompt, in order of `sample`.
struct Group {
  std::vector<Trajectory> samples;
};

}  // namespace temper
