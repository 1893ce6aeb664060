#pragma once
// The line that a step leaves for people.

#include <cstdint>
#include <map>
#include <string>

namespace temper {

inline constexpr size_t kTerminalColumns = 79;

/// The line that says the metrics of a step. `seconds_left`: until the last step. Where stderr is a terminal
/// it has at most 79 columns: what matters least is left out.
std::string step_line(int64_t step, int64_t last_step, const std::map<std::string, double>& metrics,
                      double seconds_left);

}  // namespace temper
