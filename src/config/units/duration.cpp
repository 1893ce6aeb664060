#include "src/config/units/duration.h"

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

/// Digits at the front of `text`, which loses them; nothing where there are none, or too many.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const size_t before = text.size();
  for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1)) {
    number = number * 10 + (text[0] - '0');
    if (number > kLongest) return std::nullopt;
  }
  return text.size() == before ? std::nullopt : std::optional(number);
}

/// Seconds of "[days-]hours:minutes:seconds", minutes and seconds in two digits.
std::optional<int64_t> parse_clock(std::string_view text) {
  int64_t days = 0;
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    const std::optional<int64_t> number = take_number(text);
    if (!number || !text.starts_with('-')) return std::nullopt;
    days = *number;
    text.remove_prefix(1);
  }
  const std::optional<int64_t> hours = take_number(text);
  if (!hours || text.size() != 6 || text[0] != ':' || text[3] != ':') return std::nullopt;
  std::string_view minutes_text = text.substr(1, 2), seconds_text = text.substr(4, 2);
  const std::optional<int64_t> minutes = take_number(minutes_text), seconds = take_number(seconds_text);
  const bool whole = minutes_text.empty() && seconds_text.empty();
  if (!whole || !minutes || !seconds || *minutes > 59 || *seconds > 59) return std::nullopt;
  return days * 86400 + *hours * 3600 + *minutes * 60 + *seconds;
}

/// Seconds of "1d12h", "90s".
std::optional<int64_t> parse_units(std::string_view text) {
  int64_t total = 0;
  size_t next_unit = 0;
  while (!text.empty()) {
    const std::optional<int64_t> number = take_number(text);
    if (!number || text.empty()) return std::nullopt;
    while (next_unit < kUnits.size() && kUnits[next_unit].letter != text[0]) ++next_unit;
    if (next_unit == kUnits.size()) return std::nullopt;
    total += *number * kUnits[next_unit++].seconds;  // at most 4 * kLongest * 86400
    text.remove_prefix(1);
  }
  return total;
}

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  const bool clock = text.find(':') != std::string_view::npos;
  const std::optional<int64_t> total = clock ? parse_clock(text) : parse_units(text);
  if (!total || *total < 1 || *total > kLongest) return std::nullopt;
  return static_cast<double>(*total);
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
