#pragma once
// The tokens of an answer as a parser reads them; what does not fit throws NoValue.

#include <string>
#include <string_view>

#include "src/rl/rewards/math/sum.h"
#include "src/rl/rewards/math/tokens.h"

namespace temper {

class MathCursor {
 public:
  explicit MathCursor(const MathTokens& tokens) : tokens_(tokens) {}

  bool done() const { return at_ >= tokens_.size(); }
  bool is(std::string_view token, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead] == token;
  }
  bool is_number(size_t ahead = 0) const;
  bool is_letter_at(size_t ahead = 0) const;
  const std::string& token(size_t ahead = 0) const { return tokens_[at_ + ahead]; }
  bool skip(std::string_view token);
  void advance(size_t tokens = 1) { at_ += tokens; }
  void step_back() { --at_; }
  void need(std::string_view token);
  std::string take();

  int64_t bars = 0, sets = 0;  // that are open around

 private:
  const MathTokens& tokens_;
  size_t at_ = 0;
};

}  // namespace temper
