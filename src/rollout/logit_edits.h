#pragma once
// The logits that are changed before a token is drawn: the bias of its id, ids that would end the response
// too early, penalties on ids that the sequence holds. They depend on the options and on the tokens of the
// sequence alone, so that preemption and its second prefill change nothing.

#include <span>
#include <vector>

#include "src/rollout/request.h"
#include "src/rollout/token_counts.h"

namespace temper {

class LogitEdits {
 public:
  explicit LogitEdits(const GenerateOptions& options);

  /// Counts of a sequence that begins with `prompt_tokens` tokens of prompt; empty where no penalty needs
  /// them.
  TokenCounts count(std::span<const int32_t> tokens, int64_t prompt_tokens) const;
  /// The response grew by `token`.
  void count_next(TokenCounts& counts, int32_t token) const;

  /// False where `at` is empty whatever the counts are.
  bool any_at(int64_t position) const {
    return counts_response_ || !(position < min_new_tokens_ ? early_bias_ : bias_).empty();
  }

  /// Edits for the token at `position` of the response, ids ascending; empty when all options are off.
  std::vector<LogitEdit> at(const TokenCounts& counts, int64_t position) const;

 private:
  bool counts_prompt_, counts_response_;
  int64_t min_new_tokens_;
  std::vector<LogitEdit> bias_;        // of every position
  std::vector<LogitEdit> early_bias_;  // of positions below min_new_tokens_: stop ids are at -infinity
};

}  // namespace temper
