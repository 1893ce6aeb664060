#include "src/rl/rewards/math/number.h"

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr size_t kDigits = 18;         // of a plain number
constexpr size_t kFractionDigits = 9;  // of each part of a fraction or mixed number

class Cursor {
 public:
  explicit Cursor(const MathTokens& tokens) : tokens_(tokens) {}
  bool done() const { return at_ == tokens_.size(); }
  bool skip(std::string_view token) {
    if (done() || tokens_[at_] != token) return false;
    ++at_;
    return true;
  }
  /// -1 after `-`, else 1 (a `+` is skipped).
  int sign() {
    if (skip("-")) return -1;
    skip("+");
    return 1;
  }
  std::optional<Rational> number(size_t max_digits) {
    if (done() || !is_digit(tokens_[at_][0])) return std::nullopt;
    Rational value{0, 1};
    bool fraction = false;
    size_t digits = 0;
    for (char c : tokens_[at_++]) {
      if (c == '.') {
        fraction = true;
        continue;
      }
      if (++digits > max_digits) return std::nullopt;
      value.numerator = value.numerator * 10 + (c - '0');
      if (fraction) value.denominator *= 10;
    }
    return value;
  }
  std::optional<Rational> braced_number() {
    if (!skip("{")) return std::nullopt;
    const int negative = sign();
    std::optional<Rational> value = number(kFractionDigits);
    if (!value || !skip("}")) return std::nullopt;
    value->numerator *= negative;
    return value;
  }

 private:
  const MathTokens& tokens_;
  size_t at_ = 0;
};

std::optional<Rational> fraction(Cursor& cursor) {
  std::optional<Rational> above = cursor.braced_number();
  std::optional<Rational> below = above ? cursor.braced_number() : std::nullopt;
  if (!below || below->numerator == 0) return std::nullopt;
  return Rational{above->numerator * below->denominator, above->denominator * below->numerator};
}

}  // namespace

std::optional<Rational> rational_value(const MathTokens& tokens) {
  Cursor cursor(tokens);
  const int sign = cursor.sign();
  const bool starts_with_fraction = cursor.skip("\\frac");
  std::optional<Rational> value = starts_with_fraction ? fraction(cursor) : cursor.number(kDigits);
  if (!value) return std::nullopt;
  if (!starts_with_fraction && cursor.skip("\\frac")) {
    std::optional<Rational> part = fraction(cursor);
    const Int128 whole = value->numerator, limit = 1000000000;
    const bool plain = part && value->denominator == 1 && whole < limit && part->numerator >= 0 &&
                       part->denominator > 0 && part->denominator < limit && part->numerator < limit;
    if (!plain) return std::nullopt;
    value = Rational{whole * part->denominator + part->numerator, part->denominator};
  }
  if (!cursor.done()) return std::nullopt;
  value->numerator *= sign;
  return value;
}

}  // namespace temper
