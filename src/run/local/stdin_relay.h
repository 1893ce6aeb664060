#pragma once
// A terminal as stdin of a rank: Linux stops what reads a terminal from a group in its background, which
// ranks are in. So the parent reads, and the rank has a pipe.

#include <poll.h>

#include <string>
#include <vector>

namespace temper {

class StdinRelay {
 public:
  /// Nothing where `from` is no terminal: a file or a pipe the rank can have itself.
  explicit StdinRelay(int from);
  ~StdinRelay();
  StdinRelay(const StdinRelay&) = delete;
  StdinRelay& operator=(const StdinRelay&) = delete;

  /// What the rank reads: `from`, or the pipe.
  int reads() const { return reads_; }
  /// Once the rank has it.
  void close_reads();
  void add_to(std::vector<pollfd>& wanted) const;
  /// Passes on what was typed.
  void look();

 private:
  bool relays() const { return writes_ >= 0; }

  int from_, reads_, writes_ = -1;
  std::string waiting_;  // for room in the pipe
};

}  // namespace temper
