#include "src/run/record/run_log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/printable.h"
#include "src/run/record/step_line.h"

namespace temper {
namespace {

constexpr const char* kProgress = "progress";  // the logger of what goes on
constexpr double kTerminalInterval = 0.5;      // seconds

bool on_terminal() { return ::isatty(STDERR_FILENO) == 1; }

/// Messages alone, in lines. On a terminal one of `log_progress` has no end of line: the next one replaces
/// it.
class ConsoleFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const bool stays = !terminal_ || message.logger_name != kProgress;
    std::string text = printable({message.payload.data(), message.payload.size()});
    if (!stays) text.resize(std::min(text.size(), kTerminalColumns));
    if (replaces_) text.insert(0, "\r\033[K");
    if (stays) text += '\n';
    replaces_ = !stays && message.payload.size() > 0;
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<ConsoleFormatter>(); }

 private:
  bool terminal_ = on_terminal(), replaces_ = false;
};

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
  std::vector<spdlog::sink_ptr> sinks, progress;
  if (on_stderr || rank == 0) {
    auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    console->set_formatter(std::make_unique<ConsoleFormatter>());
    console->set_level(spdlog::level::from_str(level));
    progress.push_back(console);
    if (on_stderr) sinks.push_back(console);
  }
  if (!file.empty()) {
    require_log_file(file);
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    sink->set_formatter(printing(fmt::format("%Y-%m-%dT%H:%M:%S.%e rank {} %l %v", rank)));
    sinks.push_back(sink);
    if (!on_terminal()) progress.push_back(sink);
  }
  auto logger = std::make_shared<spdlog::logger>("temper", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  auto shows = std::make_shared<spdlog::logger>(kProgress, progress.begin(), progress.end());
  shows->flush_on(spdlog::level::info);
  spdlog::drop(kProgress);
  spdlog::register_logger(shows);
}

std::string rank_log_file(const std::string& run_folder, int rank) {
  return join_path(run_folder, fmt::format("logs/rank-{:04d}.log", rank));
}

void log_progress(const std::string& text) {
  const std::shared_ptr<spdlog::logger> shows = spdlog::get(kProgress);
  if (shows && (on_terminal() || !text.empty())) shows->info(text);
}

double progress_interval(double seconds) {
  return on_terminal() ? std::min(seconds, kTerminalInterval) : seconds;
}

}  // namespace temper
