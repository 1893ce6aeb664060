#pragma once
// A door is one protocol by which clients ask for turns: what it reads of a body, and how it says answers,
// streams and errors. Doors know nothing of the network, of sessions, or of the engine.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agents/turns/request_error.h"
#include "src/agents/turns/turn_text.h"
#include "src/core/json.h"
#include "src/data/tokenizer/tokenizer.h"
#include "src/rl/types.h"

namespace temper {

/// Sampling that a client asks for. `serve` obeys it; in training the run's holds.
struct SamplingWish {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, min_new_tokens;
  std::map<int32_t, double> logit_bias = {};
  std::optional<uint64_t> seed;
};

/// What a client asks for, whatever the door.
struct DoorRequest {
  std::string model;
  Json messages = {}, tools = {}, arguments = {};  // messages.h; null: none
  std::vector<std::vector<int32_t>> prompts = {};  // ids instead of messages: completions may have several
  int32_t n = 1;
  int64_t max_new_tokens = 0;  // 0: not said
  std::vector<std::string> stop = {};
  std::vector<int32_t> stop_token_ids = {};
  SamplingWish sampling = {};
  bool stream = false, include_usage = false, logprobs = false, return_token_ids = false;
  bool echo = false;         // completions: the answer begins with the prompt
  bool only_prompt = false;  // and has nothing else
  /// Answers to all prompts.
  int32_t choices() const { return n * std::max(1, static_cast<int32_t>(prompts.size())); }
  bool scores_prompts() const { return echo && (logprobs || only_prompt); }
};

/// What the model thinks of a token of a prompt, and of the likeliest one in its place.
struct PromptLogprob {
  double logprob = 0;
  int32_t best = 0;
  double best_logprob = 0;
};

/// One answer to a request.
struct DoorChoice {
  std::vector<int32_t> prompt = {};                 // of doors that take several, with their scores
  std::vector<PromptLogprob> prompt_logprobs = {};  // by position; empty: nobody asked
  Response response = {};
  TurnText said = {};  // of doors that speak in messages
  std::vector<std::string> call_ids = {};
};

struct DoorAnswer {
  std::string id;
  int64_t created = 0;  // seconds of the clock
  std::vector<int32_t> prompt;
  int64_t prompt_tokens = 0;  // of all prompts
  int64_t cached_tokens = 0;  // of those, the ones that lay in pages
  std::vector<DoorChoice> choices;

  int64_t completion_tokens() const;
};

/// What a piece of a stream says: of choice `index`.
struct DoorDelta {
  int32_t index = 0;
  TurnText said = {};                      // deltas; calls are finished ones
  std::vector<std::string> call_ids = {};  // of said.calls
  std::string text = {};                   // of doors that speak in text
  std::vector<int32_t> tokens = {};
  std::vector<double> logprobs = {};
};

struct DoorError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field
  std::string code = {};   // "context_length_exceeded", "session_ended", ...
  /// Where a request is too long: its tokens, and the most that the context has.
  int64_t tokens = 0, limit = 0;
  std::optional<int> retry_after_seconds = {};
};

/// The events of one streamed answer, as text that goes to the client as it is.
class DoorStream {
 public:
  virtual ~DoorStream() = default;
  virtual std::string begin() = 0;
  virtual std::string delta(const DoorDelta& delta) = 0;
  /// Choice `index` is over.
  virtual std::string end_choice(int32_t index, const DoorChoice& choice) = 0;
  virtual std::string end(const DoorAnswer& answer) = 0;
  virtual std::string keep_alive() = 0;
  virtual std::string error(const DoorError& error) = 0;
};

struct DoorRules {
  std::set<std::string> ignore = {};  // fields that pass unread
};

class Door {
 public:
  virtual ~Door() = default;
  /// RequestError for what is illegal or cannot be obeyed.
  virtual DoorRequest read(const Json& body, const DoorRules& rules) const = 0;
  virtual std::string answer(const DoorRequest& request, const DoorAnswer& answer) const = 0;
  virtual std::unique_ptr<DoorStream> stream(const DoorRequest& request, const DoorAnswer& head) const = 0;
  virtual std::string error(const DoorError& error) const = 0;
};

/// "stop", "length", or, with calls, "tool_calls".
std::string finish_of(const DoorChoice& choice);

}  // namespace temper
