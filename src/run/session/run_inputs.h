#pragma once
// What a rank of a training run reads: tokenizer, prompts, rewards, and the digests of all that any rank
// read.

#include "src/data/prompt_frame.h"
#include "src/run/record/origins/input_digests.h"
#include "src/run/session/placement.h"

namespace temper {

struct RunInputs {
  /// Every rank of `world` calls it. Bad data ends the run here, before it has a folder.
  RunInputs(const RunTask& task, const Placement& placement, Comm& world);

  /// What the chat template puts around a question of this run; no frame where its prompts are plain text.
  PromptFrame prompt_frame(const DataConfig& data) const;
  /// Lines of the data; 0: this rank does not read them.
  int64_t num_lines() const { return prompts ? prompts->num_lines() : 0; }

  TextTools text = {};
  std::unique_ptr<PromptStream> prompts = {};  // on ranks that draw from the data
  std::unique_ptr<RewardSet> rewards = {};     // null: the config names none
  InputDigests digests = {};                   // of the whole run, on all ranks
};

}  // namespace temper
