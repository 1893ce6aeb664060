#pragma once
// The state of a prompt or a sample on its way through the engine.
//
//   prompt waits -> prefill in chunks -> forked into n samples -> each decodes one row a step -> finished
//                        ^                                              |
//                        +--- pages ran out: pages dropped, prefilled again later (same bits) ---+

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/data/tokenizer/tokenizer.h"
#include "src/rl/types.h"
#include "src/rollout/logit_edits.h"
#include "src/rollout/page_index.h"
#include "src/rollout/request.h"
#include "src/rollout/state_cache.h"
#include "src/rollout/token_counts.h"

namespace temper {

/// How the tokens of a request are drawn, and what ends its responses.
struct ResponseRules {
  explicit ResponseRules(const GenerateOptions& o) : options(o), edits(options) {}
  ResponseRules(const ResponseRules&) = delete;
  ResponseRules& operator=(const ResponseRules&) = delete;

  const GenerateOptions options;
  const LogitEdits edits;
};

/// What the model thinks of a token of a prompt, and of the likeliest one in its place.
struct PromptScore {
  double logprob = 0;
  int32_t best = 0;
  double best_logprob = 0;
};

/// One sample in flight, or (before the fork) the prompt of a request.
struct Sequence {
  size_t request = 0;
  std::shared_ptr<const ResponseRules> rules;
  int64_t data_position = 0;
  int32_t sample = -1;           // -1: the prompt itself
  int32_t first_sample = 0;      // of its request: random numbers
  std::vector<int32_t> samples;  // of a prompt: what it is forked into
  std::vector<int32_t> tokens;   // prompt and response so far
  int64_t prompt_tokens = 0;
  int64_t begun_tokens = 0;  // of the response, by earlier calls than this one, which a stop may have cut
  std::optional<std::vector<PromptScore>> scores = {};  // of a prompt that is to be scored, by position
  TokenCounts counts;                                   // of those tokens, where penalties need them
  std::vector<int32_t> pages;
  HeldState state = {};     // of gated delta nets, where the model has some
  Noted noted = {};         // of the pages
  int64_t cached = 0;       // tokens whose keys are in the pages
  int64_t found = 0;        // of a prompt: tokens whose keys earlier requests had left in pages
  int64_t seen = 0;         // most tokens ever cached: rows below it are recomputed ones
  int steps = 0;            // with rows of it that parts of this stage have still to be gone through
  bool cancelled = false;   // ends when it is no longer at work
  bool after_stop = false;  // this call had made tokens of it: it counts no recomputed rows
  RolloutCounters rows;     // counted since its last token
  /// The rows of the prompt that are counted, until one of its samples gets a token; they share it.
  std::shared_ptr<RolloutCounters> prompt_rows;

  void got_token() { rows = *prompt_rows = {}; }
  Response response;
  std::unique_ptr<StreamDecoder> decoder;
  bool text_cut = false;  // a stop string ended the text
  size_t streamed = 0;    // bytes of the text that were handed out

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t new_tokens() const { return size() - prompt_tokens; }
  bool is_prompt() const { return sample < 0; }
  /// Ends that it will have: those of a prompt's samples, or its own.
  size_t ends() const { return is_prompt() ? std::max<size_t>(1, samples.size()) : 1; }
  /// Rows to feed before the next token can be sampled.
  int64_t missing() const { return size() - cached; }
  bool decoding() const { return !is_prompt() && missing() == 1; }
  /// All rows are fed, and what is drawn from the last one is not known yet; of a prompt, its step is not at
  /// the end of the model.
  bool awaits_token() const { return missing() == 0; }
  /// Its pages have to stay.
  bool at_work() const { return awaits_token() || steps > 0; }
};

}  // namespace temper
