#include "src/core/text/short_number.h"

#include <spdlog/fmt/fmt.h>

#include <string_view>

namespace temper {

std::string short_number(double value) {
  std::string_view unit = "", more = "kMGT";
  for (; value >= 999.5 && !more.empty(); value /= 1000, more.remove_prefix(1)) unit = more.substr(0, 1);
  return fmt::format("{:.{}f}{}", value, value < 9.95 && value != 0 ? 1 : 0, unit);
}

std::string grouped_number(int64_t value) {
  std::string digits = std::to_string(value);
  const std::ptrdiff_t sign = value < 0 ? 1 : 0;
  for (auto at = std::ssize(digits) - 3; at > sign; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string count_text(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped_number(count), noun, count == 1 ? "" : "s");
}

}  // namespace temper
