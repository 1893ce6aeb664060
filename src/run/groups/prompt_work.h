#pragma once
// A prompt that rollout ranks have to generate for: a new one, or one that earlier steps left unfinished. All
// rollout ranks know the whole list and deal it out alike, so a prompt may go on at another rank.

#include <cstdint>
#include <optional>
#include <vector>

#include "src/rollout/request.h"
#include "src/run/groups/prompt_stream.h"

namespace temper {

struct PromptWork {
  DrawnPrompt drawn;
  Group before = {};  // its samples as the last step left them; empty: a new prompt
  /// Where in the list of rollout teams its programs live, none: nowhere, any team may go on.
  std::optional<int64_t> home = {};
};

struct DealOptions {
  int64_t ranks = 1;
  int64_t samples_per_prompt = 1;
  int64_t max_new_tokens = 0;
  int64_t tokens_per_step = 0;  // 0: no cut
};

/// The rank of each prompt: by the most rows that a prompt can cost in the step, largest first, each to the
/// rank with the least (the first of equals); those with a home there.
std::vector<int64_t> deal(const std::vector<PromptWork>& work, const DealOptions& options);

/// A group that was begun, with its prompt. A run may go on from a checkpoint with another order of the data,
/// or others: nothing where that is accepted, else Error(Exit::data).
std::optional<PromptWork> go_on(PromptStream& prompts, Group begun, bool accepts_changes);

Request to_request(const PromptWork& work, int64_t samples_per_prompt);

/// The samples of a prompt after generation.
Group to_group(const PromptWork& work, std::vector<Response> responses);

/// The response that the data bring, as if weights of this version had said it.
Response given_response(const Prompt& prompt, int64_t version);

bool is_finished(const Group& group);
/// Nothing of it is left to generate: a stop did not wait for its rewards.
bool is_whole(const PromptWork& work);
/// All samples with a reward earned the same raw one: no advantage comes of them.
bool is_uniform(const Group& group);
/// That of a uniform group; 0 where no sample has one.
double shared_reward(const Group& group);

}  // namespace temper
