#pragma once
// Durations as users write them: "3h45m", "90s", "1d12h" with units d, h, m, s, each at most once and in this
// order, or as batch systems do: "03:45:00", "1-12:00:00" (hours, minutes and seconds behind days).

#include <optional>
#include <string>
#include <string_view>

namespace temper {

/// Seconds, or nothing when `text` is no duration of at least a second and at most ten years.
std::optional<double> parse_duration(std::string_view text);

/// The shortest text that parses to the same whole number of seconds.
std::string format_duration(double seconds);

}  // namespace temper
