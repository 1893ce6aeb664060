#pragma once
// What the engine is asked for, and what a call of it counts.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/types.h"
#include "src/nn/model_config.h"
#include "src/rl/types.h"

namespace temper {

struct GenerateOptions {
  SampleOptions sampling;
  uint64_t seed = 0;
  int64_t max_new_tokens = 0;
  int64_t tokens_per_call = 0;          // a sample that got so many in one call is left unfinished; 0: no cut
  int64_t min_new_tokens = 0;           // neither a stop id nor a stop string ends with one of the first ones
  std::vector<int32_t> stop_token_ids;  // a sampled one ends the sequence and belongs to it
  std::vector<std::string> stop;        // need a tokenizer
  bool include_stop_text = false;       // the text of a response ends with the stop string, not before it
  std::map<int32_t, double> logit_bias;
  int64_t num_sampleable = 0;  // ids from here on are never drawn
  int64_t version = 0;         // of the weights, as responses record it
};

/// One prompt and its n samples. (data_position, sample) keys the random numbers.
struct Request {
  int64_t data_position = 0;
  std::vector<int32_t> prompt;
  int32_t num_samples = 1;  // 0: the prompt is scored, and that is all
  /// The random numbers of sample i are those of first_sample + i.
  int32_t first_sample = 0;
  /// By sample, where an earlier call began them; empty: none did. Unfinished ones go on.
  std::vector<Response> begun = {};
  /// A stop cut this very call, which began the tokens of these weights (GenerateOptions::version): they
  /// count in its budget, and what it costs to come back to them is not counted, as if it had never been cut.
  bool after_stop = false;
  /// The tokens of the prompt are scored, too (prompt_scores.h).
  bool scores_prompt = false;
  /// Sampling, seed, limits, budget and stops of its own; null: those of the call. num_sampleable and version
  /// are the call's.
  std::shared_ptr<const GenerateOptions> own = {};
};

/// The prompt must be non-empty and, with the longest begun response, leave room for a token among
/// `capacity`; ids are in the model's vocabulary. Else Error(Exit::data) at the data position.
void check_request(const Request& request, int64_t capacity, const ModelConfig& model);

/// A call that is cut before it makes tokens of a begun response leaves a run of 0 tokens in its versions:
/// the call before may have had the same weights.
void leave_run(bool after_stop, Response& response, int64_t version);
/// The tokens that a call with these weights made of a response before a stop cut it, if one did.
int64_t tokens_before_stop(bool after_stop, const Response& response, int64_t version);
/// The samples that the call works on: those that neither ended nor have all tokens of the call.
std::vector<int32_t> open_samples(const Request& request, const GenerateOptions& options);

/// Rows through the model: a prompt token is prefilled once per group, a response token but the last is one
/// generated row; recomputed rows are what preemption, or going on with a begun sample, cost. Rows of which a
/// stop left no token do not count.
struct RolloutCounters {
  int64_t rows_prefilled = 0, rows_shared = 0, rows_generated = 0, rows_recomputed = 0, preemptions = 0;
};
void add(RolloutCounters& all, const RolloutCounters& some, int64_t times = 1);

}  // namespace temper
