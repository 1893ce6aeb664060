#include "src/run/plan/report/sizes.h"

#include <spdlog/fmt/fmt.h>

#include <array>

#include "src/core/text/short_number.h"

namespace temper {
namespace {

constexpr SizeUnit kGiB{"GiB", 1073741824.0, 3}, kMiB{"MiB", 1048576.0, 1};

}  // namespace

SizeUnit size_unit(int64_t largest) { return largest < static_cast<int64_t>(kGiB.bytes) ? kMiB : kGiB; }

std::string size_text(int64_t bytes) {
  const SizeUnit unit = size_unit(bytes);
  const double value = unit.of(bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, unit.name);
}

std::string large_text(int64_t number) {
  const auto value = static_cast<double>(number);
  if (number >= 1'000'000'000)
    return fmt::format("{:.{}f} billion", value / 1e9, number < 100'000'000'000 ? 2 : 0);
  if (number >= 1'000'000) return fmt::format("{:.{}f} million", value / 1e6, number < 10'000'000 ? 2 : 0);
  return grouped_number(number);
}

std::string time_text(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr std::array<Unit, 3> kUnits{{{60, "min"}, {3600, "h"}, {86400, "days"}}};
  double value = seconds;
  const char* name = "s";
  for (const Unit& unit : kUnits)
    if (seconds >= 2 * unit.seconds) value = seconds / unit.seconds, name = unit.name;
  return fmt::format("{:.{}f} {}", value, value < 1 ? 2 : value < 10 ? 1 : 0, name);
}

}  // namespace temper
