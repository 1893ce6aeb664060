#pragma once
// What the engine is asked for, what it gives back, and the state of a sequence in between.
//
//   prompt waits -> prefill in chunks -> forked into n samples -> each decodes one row a step -> finished
//                        ^                                              |
//                        +--- pages ran out: pages dropped, prefilled again later (same bits) ---+

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/types.h"
#include "src/data/tokenizer/tokenizer.h"
#include "src/rl/types.h"
#include "src/rollout/token_counts.h"

namespace temper {

/// One prompt and its n samples. (data_position, sample) keys the random numbers.
struct Request {
  int64_t data_position = 0;
  std::vector<int32_t> prompt;
  int32_t num_samples = 1;
  /// By sample, where an earlier call began them; empty: none did. Unfinished ones go on.
  std::vector<Response> begun = {};
};

struct GenerateOptions {
  SampleOptions sampling;
  uint64_t seed = 0;
  int64_t max_new_tokens = 0;
  int64_t tokens_per_call = 0;          // a sample that got so many in one call is left unfinished; 0: no cut
  int64_t min_new_tokens = 0;           // neither a stop id nor a stop string ends with one of the first ones
  std::vector<int32_t> stop_token_ids;  // a sampled one ends the sequence and belongs to it
  std::vector<std::string> stop;        // need a tokenizer
  std::map<int32_t, double> logit_bias;
  int64_t num_sampleable = 0;  // ids from here on are never drawn
  int64_t version = 0;         // of the weights, as responses record it
};

/// Rows through the model: a prompt token is prefilled once per group, a response token but the last is one
/// generated row; recomputed rows are what preemption, or going on with a begun sample, cost.
struct RolloutCounters {
  int64_t rows_prefilled = 0, rows_shared = 0, rows_generated = 0, rows_recomputed = 0, preemptions = 0;
};

/// One sample in flight, or (before the fork) the prompt of a request.
struct Sequence {
  size_t request = 0;
  int32_t sample = -1;           // -1: the prompt itself
  std::vector<int32_t> samples;  // of a prompt: what it is forked into
  std::vector<int32_t> tokens;   // prompt and response so far
  int64_t prompt_tokens = 0;
  int64_t begun_tokens = 0;  // of the response, by earlier calls
  TokenCounts counts;        // of those tokens, where penalties need them
  std::vector<int32_t> pages;
  int64_t cached = 0;  // tokens whose keys are in the pages
  int64_t seen = 0;    // most tokens ever cached: rows below it are recomputed ones
  Response response;
  std::unique_ptr<StreamDecoder> decoder;
  bool text_cut = false;  // a stop string ended the text
  size_t streamed = 0;    // bytes of the text that were handed out

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t new_tokens() const { return size() - prompt_tokens; }
  bool is_prompt() const { return sample < 0; }
  /// Rows to feed before the next token can be sampled.
  int64_t missing() const { return size() - cached; }
  bool decoding() const { return !is_prompt() && missing() == 1; }
};

}  // namespace temper
