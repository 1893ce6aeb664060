#pragma once
// The program of a tracker, as who owns it sees it: lines out, lines of JSON in; nothing ever waits here, and
// little is kept of what it says.

#include <string>
#include <string_view>
#include <vector>

#include "src/core/helpers/helpers.h"
#include "src/core/json.h"
#include "src/core/process/unsent.h"

namespace temper {

class TrackerProgram {
 public:
  static constexpr size_t kMaxLine = size_t{64} << 10;
  static constexpr size_t kMaxAnswers = 64;  // of one look: it is asked for one at a time

  explicit TrackerProgram(const HelperProgram& started) : program(started) {}

  void put(std::string_view lines) { unsent_.add(lines); }
  bool wants_to_write() const { return unsent_.any(); }
  /// Writes what the pipe takes.
  void write();
  /// No more will be written; it may end.
  void close_input();
  bool input_closed() const { return program.input < 0; }

  enum class Said { lines, end, nonsense };
  /// Reads what there is: whole lines, in order, into `answers`. `nonsense`: see `why`.
  Said read(std::vector<Json>& answers);

  HelperProgram program;
  std::string why;

 private:
  Unsent unsent_;
  std::string unread_;
};

}  // namespace temper
