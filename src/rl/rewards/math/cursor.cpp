#include "src/rl/rewards/math/cursor.h"

#include "src/rl/rewards/text.h"

namespace temper {

bool MathCursor::is_number(size_t ahead) const {
  return at_ + ahead < tokens_.size() && is_digit(tokens_[at_ + ahead][0]);
}

bool MathCursor::is_letter_at(size_t ahead) const {
  return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].size() == 1 &&
         is_letter(tokens_[at_ + ahead][0]);
}

bool MathCursor::skip(std::string_view token) {
  if (!is(token)) return false;
  ++at_;
  return true;
}

void MathCursor::need(std::string_view token) {
  if (!skip(token)) throw NoValue{};
}

std::string MathCursor::take() {
  if (done()) throw NoValue{};
  return tokens_[at_++];
}

}  // namespace temper
