#include "src/run/record/run_log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <vector>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/printable.h"

namespace temper {
namespace {

/// The message, as %v, without what it must not do to a terminal.
class PrintableMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

std::unique_ptr<spdlog::formatter> printing(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('v').set_pattern(pattern);
  return formatter;
}

/// spdlog follows links, and what it cannot open is no error of ours to it.
void require_log_file(const std::string& file) {
  if (is_directory(file))
    fail(Exit::busy, {.what = "the log cannot be written",
                      .where = file,
                      .why = "a folder is in the place of the file",
                      .fix = "move it out of the run folder, or choose another run.name"});
  OutputFile(file, OutputFile::Mode::append);
}

}  // namespace

void start_log(const std::string& file, const std::string& level, int rank, bool on_stderr) {
  std::vector<spdlog::sink_ptr> sinks;
  if (on_stderr) {
    auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    console->set_formatter(printing("%v"));
    console->set_level(spdlog::level::from_str(level));
    sinks.push_back(console);
  }
  if (!file.empty()) {
    require_log_file(file);
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    sink->set_formatter(printing(fmt::format("%Y-%m-%dT%H:%M:%S.%e rank {} %l %v", rank)));
    sinks.push_back(sink);
  }
  auto logger = std::make_shared<spdlog::logger>("temper", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

}  // namespace temper
