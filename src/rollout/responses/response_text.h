#pragma once
// The text of responses while they grow: out of the decoder token by token, cut before the first stop string
// (or behind it, GenerateOptions::include_stop_text), and handed out up to where a stop string may have
// begun.

#include <string>

#include "src/rollout/request.h"
#include "src/rollout/sequence.h"

namespace temper {

class ResponseText {
 public:
  /// The tokenizer outlives it. Without one texts stay empty, and there may be no stop strings.
  explicit ResponseText(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  /// Stop strings can be found.
  bool finds(const GenerateOptions& options) const { return tokenizer_ || options.stop.empty(); }
  /// Adds the text of a token that `s` has taken; true when it completes a stop string.
  bool grow(Sequence& s, int32_t token) const;
  /// The response has ended: adds what the decoder held back.
  void end(Sequence& s) const;

  /// Earlier calls have handed out what is certain in `before`.
  void skip(Sequence& s, const std::string& before) const;
  /// What is certain and was not handed out yet.
  std::string take_certain(Sequence& s) const;

 private:
  bool add(Sequence& s, const std::string& more) const;

  const Tokenizer* tokenizer_;
};

}  // namespace temper
