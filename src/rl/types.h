#pragma once
// A response, and the group of all responses to one prompt: what rollouts make, rewards and advantages fill,
// trainers consume and rollout files show. Plain data; numbers are double so that an fp64 run loses nothing
// (fp32 values are exact in double).
// Invariants: mask is as long as tokens; logprobs, ref_logprobs, teacher_logprobs and advantages are that
// long or empty (unknown); the counts of versions sum to that length when they are known.

#include <cstdint>
#include <optional>
#include <span>
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

/// What a policy says to a prompt.
struct Response {
  std::vector<int32_t> tokens;   // the stop token included
  std::vector<uint8_t> mask;     // 1 = trained (model-generated) token
  std::vector<double> logprobs;  // log-softmax(z/T) before any filter, of the policy that sampled
  std::vector<std::pair<int64_t, int32_t>> versions;  // of its weights: runs of (version, number of tokens)
  std::string text;  // special tokens left out, cut at a stop string; empty without a tokenizer
  FinishReason finish = FinishReason::unfinished;
  std::vector<uint8_t> routes = {};  // of prompt and response (rl/routes.h); empty: not recorded
};

/// What is known of the session that a trajectory is of.
struct SessionNote {
  int32_t fork = 0;   // 0, 1, ...: sessions whose histories were rewritten have several trajectories
  int32_t turns = 0;  // of its path
  std::string environment = {}, end_reason = {};
  std::string requests = {};  // JSON, of the first fork: what each turn asked; unfinished: its record
  // What its program said, before all rewards are summed up:
  std::optional<double> reward = {};
  std::vector<std::pair<std::string, double>> parts = {};
  bool excluded = false;  // whatever functions say
};

struct Trajectory {
  int64_t data_position = 0;  // (data_position, sample) identifies the response in a run
  int32_t group = 0;          // index of the group in the step
  int32_t sample = 0;         // index in the group
  std::vector<int32_t> prompt_tokens;
  std::string prompt, answer;
  std::string domain;  // of the prompt's line; empty: it has none
  Response response;
  std::vector<double> ref_logprobs;      // empty = no reference
  std::vector<double> teacher_logprobs;  // empty = no teacher
  /// The log-probs under the weights before the first update of the step, where others sampled; the trainer
  /// fills them. Empty: as response.logprobs; NaN: those of the update itself.
  std::vector<double> old_logprobs;
  bool excluded = false;  // no reward could be found: outside of all statistics, and nothing is trained on it
  double raw_reward = 0;  // weighted sum of the task rewards; filters use it
  double reward = 0;      // raw_reward plus shaping; advantages use it
  std::vector<std::pair<std::string, double>> reward_parts;  // unweighted, in the order of reward.functions
  std::optional<SessionNote> session = {};                   // where a program played it
  double advantage = 0;            // of every token; where they differ the mean over the counted ones
  std::vector<double> advantages;  // by token, 0 where not counted; empty: all have the same

  /// Another trajectory of its session stands for it in statistics.
  bool is_fork() const { return session && session->fork > 0; }
  double advantage_of(size_t token) const { return advantages.empty() ? advantage : advantages[token]; }
  /// n_i: response tokens that enter the loss.
  int64_t counted_tokens() const {
    int64_t count = 0;
    for (uint8_t m : response.mask) count += m != 0;
    return count;
  }
};

/// All responses to one prompt, in order of `sample`.
struct Group {
  std::vector<Trajectory> samples;
};

/// Where each response begins in a list in order, and where the list ends; what one session left is one.
inline std::vector<size_t> response_begins(std::span<const Trajectory* const> all) {
  std::vector<size_t> begins;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i]->is_fork()) begins.push_back(i);
  begins.push_back(all.size());
  return begins;
}

/// The counted tokens of a response, in all that its session left.
inline int64_t counted_tokens_of_response(std::span<const Trajectory* const> all, size_t index) {
  int64_t count = all[index]->counted_tokens();
  if (!all[index]->session) return count;
  for (size_t i = index; all[i]->is_fork() && i > 0;) count += all[--i]->counted_tokens();
  for (size_t i = index + 1; i < all.size() && all[i]->is_fork(); ++i) count += all[i]->counted_tokens();
  return count;
}

/// All trajectories in order of group and sample; the groups outlive the list.
inline std::vector<const Trajectory*> in_order(std::span<const Group> groups) {
  std::vector<const Trajectory*> all;
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples) all.push_back(&t);
  return all;
}

}  // namespace temper
