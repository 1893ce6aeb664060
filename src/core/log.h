#pragma once
// Lines for people: they go where run/record/run_log.h sends them. What writes them (spdlog, whose templates
// cost a file that logs two seconds of its compilation) is known to log.cpp alone.

#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>

namespace temper::log {

enum class Level { debug, info, warn, error };

/// Writes one line, from any thread; what becomes of a line that cannot be written is no affair of the
/// caller.
void write(Level level, const std::string& text);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace temper::log
