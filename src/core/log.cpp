#include "src/core/log.h"

#include <spdlog/spdlog.h>

namespace temper::log {
namespace {

spdlog::level::level_enum severity(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void write(Level level, const std::string& text) {
  spdlog::default_logger_raw()->log(severity(level), spdlog::string_view_t(text));
}

}  // namespace temper::log
