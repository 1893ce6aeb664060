#pragma once
// The signals that stop a program, wake it or stand it still, as numbers to read. They are caught, not held
// back: a thread that libraries have begun (the driver of a GPU does) would be ended by what this thread
// holds, and the process with it.

#include <optional>

namespace temper {

/// One in a process, until its end. Where SIGHUP is ignored (nohup) it stays so.
class TakenSignals {
 public:
  TakenSignals();
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  /// Readable where one has come.
  int descriptor() const { return come_; }
  std::optional<int> next() const;

 private:
  int come_ = -1;
};

}  // namespace temper
