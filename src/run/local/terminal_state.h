#pragma once
// What a terminal is set to when a job begins, and gets back when it ends.

#include <termios.h>

#include <optional>

namespace temper {

class TerminalState {
 public:
  TerminalState();
  ~TerminalState();
  TerminalState(const TerminalState&) = delete;
  TerminalState& operator=(const TerminalState&) = delete;

  /// A line of progress that its writer cannot take back any more; nothing where stderr is no terminal.
  void clear_line() const;

 private:
  std::optional<termios> before_;
};

}  // namespace temper
