#pragma once
// The pipes of a program that plays sessions. Nothing here waits, and what a program writes is bounded: a
// line longer than kMaxHarnessLine is not kept, of stderr the end alone, and a round reads so much of each.

#include <poll.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/helpers/helpers.h"
#include "src/core/process/unsent.h"

namespace temper {

class ProgramPipes {
 public:
  explicit ProgramPipes(const HelperProgram& started) : program(started) {}

  void send(std::string_view bytes) { unsent_.add(bytes); }
  /// Its stdin ends behind what was sent.
  void end_input() { ends_input_ = true; }
  void add_to(std::vector<pollfd>& waits) const;
  /// Writes what its stdin takes, reads what there is of its stderr and how it has ended.
  void move();
  /// What came to stdout by lines without their ends; the last one without an end comes when the program has
  /// ended. `whole` is false for the begin of one that is too long. `on_line` returns whether it wants more.
  void read_lines(const std::function<bool(std::string_view line, bool whole)>& on_line);

  /// Its stdout has ended, so nothing more is heard of it.
  bool silent() const { return silent_; }
  /// What waitpid says of it, once it has ended; -1: nobody knows.
  const std::optional<int>& exited() const { return exited_; }
  /// "it exited with 1", "signal 9 (Killed) ended it".
  std::string ending() const;
  /// ": " and the last lines of stderr, printable and cut; empty where there are none.
  std::string last_words() const;

  HelperProgram program;

 private:
  void read_errors();
  bool take(std::string_view bytes, const std::function<bool(std::string_view, bool)>& on_line);

  Unsent unsent_;
  bool ends_input_ = false, silent_ = false, too_long_ = false;
  std::string line_, errors_;
  std::optional<int> exited_;
};

/// Ends a program. KeeperLost: its keeper was killed and the program with it, so how that ended says nothing
/// of it.
void end_program(Helpers& helpers, HelperProgram& program);

}  // namespace temper
