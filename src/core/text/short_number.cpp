#include "src/core/text/short_number.h"

#include <spdlog/fmt/fmt.h>

#include <string_view>

namespace temper {

std::string short_number(double value) {
  std::string_view unit = "", more = "kMGT";
  for (; value >= 999.5 && !more.empty(); value /= 1000, more.remove_prefix(1)) unit = more.substr(0, 1);
  return fmt::format("{:.{}f}{}", value, value < 9.95 && value != 0 ? 1 : 0, unit);
}

}  // namespace temper
