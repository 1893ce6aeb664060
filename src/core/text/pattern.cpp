#include "src/core/text/pattern.h"

namespace temper {

bool matches_pattern(std::string_view pattern, std::string_view text) {
  constexpr size_t kNone = std::string_view::npos;
  // The last * that was met takes more where the rest does not fit.
  size_t p = 0, t = 0, star = kNone, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != kNone) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

}  // namespace temper
