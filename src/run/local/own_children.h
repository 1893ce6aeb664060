#pragma once
// What a job has started, down to what its own children have left behind.

#include <sys/types.h>

#include <vector>

namespace temper {

class OwnChildren {
 public:
  /// From here on this process is the parent of whatever below it loses its own.
  OwnChildren();
  /// Kills `first` and waits for all: they see that it is gone, and those that do not end by themselves
  /// within moments are killed. What is in the middle of a disk access may stay. True: `first` has ended
  /// here.
  bool end(pid_t first) const;

 private:
  std::vector<pid_t> own() const;

  std::vector<pid_t> before_;  // children of this process before it was this program
};

}  // namespace temper
