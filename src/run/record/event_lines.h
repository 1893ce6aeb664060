#pragma once
// events.jsonl: the history of a run folder, a JSON object per line with "time" (local, with its offset),
// "event", and more:
//   changed      key, before, after of a value of the config since the checkpoint
//   resume       step, path of the checkpoint that the run goes on from
//   start        ranks, device, dtype, parameters, updates, lines of the data (where the first trainer rank
//                reads them), prompt_frame: what the chat template puts before and after a question
//   checkpoint   step, path; export the same
//   stop         step, reason; end only the step
// Unlike metrics it is never cut: steps that are made again have their events again.

#include <ctime>
#include <string>
#include <utility>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/file_lines.h"

namespace temper {

class EventLines {
 public:
  explicit EventLines(std::string file) : file_(std::move(file)) {}

  /// Adds a line that is on the disk when this returns. A line before it that a crash cut stays one of its
  /// own.
  void write(const char* event, const Json& more) const {
    Json line = {{"time", local_time()}, {"event", event}};
    line.update(more);
    const char* const end_of_cut = path_exists(file_) && !ends_a_line(file_) ? "\n" : "";
    OutputFile file(file_, OutputFile::Mode::append);
    file.write(end_of_cut + dump_json_line(line) + "\n");
    file.close();
  }

 private:
  static std::string local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    const std::string time(text, std::strftime(text, sizeof text, "%FT%T%z", &local));
    return time.substr(0, time.size() - 2) + ":" + time.substr(time.size() - 2);
  }

  std::string file_;
};

}  // namespace temper
