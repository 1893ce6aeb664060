#pragma once
// What samples say, token by token: their tokens, log-probs and text, what an earlier call began, and when a
// response is over.

#include <functional>

#include "src/rollout/responses/open_requests.h"
#include "src/rollout/responses/response_text.h"

namespace temper {

class ResponseGrowth {
 public:
  /// A sample of a request grew by a token. `text`: what became certain, perhaps nothing; without a tokenizer
  /// always nothing.
  struct Grown {
    size_t index = 0;  // of the request
    int32_t sample = 0, token = 0;
    double logprob = 0;
    const std::string& text;
    int64_t found = 0;  // tokens of the prompt that lay in pages when it came
  };
  using OnGrown = std::function<void(const Grown& grown)>;

  /// `capacity`: tokens that a sequence may have.
  ResponseGrowth(const Tokenizer* tokenizer, OnGrown on_grown, int64_t capacity)
      : text_(tokenizer), on_grown_(std::move(on_grown)), capacity_(capacity) {}

  /// Stop strings of the options can be found.
  bool finds(const GenerateOptions& options) const { return text_.finds(options); }
  /// Gives a sample of a prompt what an earlier call generated; its rows are then missing in the cache.
  void go_on(Sequence& s, OpenRequests& requests) const;
  /// True where the response is over, or cut.
  bool append(Sequence& s, int32_t token, double logprob) const;

 private:
  bool take(Sequence& s, int32_t token, double logprob) const;

  ResponseText text_;
  OnGrown on_grown_;
  int64_t capacity_;
};

}  // namespace temper
