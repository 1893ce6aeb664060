#include "src/run/record/run_log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <vector>

namespace temper {

void start_log(const std::string& file, const std::string& level, int rank, bool on_stderr) {
  std::vector<spdlog::sink_ptr> sinks;
  if (on_stderr) {
    auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    console->set_pattern("%v");
    console->set_level(spdlog::level::from_str(level));
    sinks.push_back(console);
  }
  if (!file.empty()) {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    sink->set_pattern(fmt::format("%Y-%m-%dT%H:%M:%S.%e rank {} %l %v", rank));
    sinks.push_back(sink);
  }
  auto logger = std::make_shared<spdlog::logger>("temper", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

}  // namespace temper
