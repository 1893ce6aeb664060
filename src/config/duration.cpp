#include "src/config/duration.h"

#include <array>
#include <cstdint>

namespace temper {
namespace {

struct Unit {
  char letter;
  int64_t seconds;
};
constexpr std::array kUnits{Unit{'d', 86400}, Unit{'h', 3600}, Unit{'m', 60}, Unit{'s', 1}};
constexpr int64_t kLongest = int64_t{3650} * 86400;

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  int64_t total = 0;
  size_t at = 0, next_unit = 0;
  while (at < text.size()) {
    int64_t number = 0;
    const size_t begin = at;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      number = number * 10 + (text[at] - '0');
      if (number > kLongest) return std::nullopt;
    }
    if (at == begin || at == text.size()) return std::nullopt;
    while (next_unit < kUnits.size() && kUnits[next_unit].letter != text[at]) ++next_unit;
    if (next_unit == kUnits.size()) return std::nullopt;
    total += number * kUnits[next_unit++].seconds;  // at most 4 * kLongest * 86400
    ++at;
  }
  if (total < 1 || total > kLongest) return std::nullopt;
  return static_cast<double>(total);
}

std::string format_duration(double seconds) {
  auto rest = static_cast<int64_t>(seconds);
  std::string text;
  for (const Unit& unit : kUnits) {
    const int64_t count = rest / unit.seconds;
    rest %= unit.seconds;
    if (count > 0) text += std::to_string(count) + unit.letter;
  }
  return text.empty() ? "0s" : text;
}

}  // namespace temper
