#pragma once
// What programs write to stderr, as it comes out at that of the process that keeps them: whole lines, in
// which a terminal finds nothing to obey. Lines that come without a pause between them (a traceback) are one
// text; the same one again is counted instead. Nothing here waits: where stderr takes no more, programs wait.

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace temper {

class ErrorLines {
 public:
  /// Takes the end of a pipe, not blocking, that a program writes to.
  void add(int descriptor);
  /// What there is to wait for.
  void add_to(std::vector<pollfd>& wanted) const;
  /// Milliseconds until `pass_on` has something to do though nothing comes, `most` at most.
  int patience(int most) const;
  /// Passes on what has come, at most kBlock bytes of each pipe. False: there was nothing.
  bool pass_on();
  /// Passes on all that is left, and how often texts came that were said once.
  void finish();

 private:
  static constexpr size_t kBlock = 4096;

  struct Source {
    int descriptor;
    std::string line = {};  // begun
    bool returned = false;  // the byte before was a carriage return
    std::string text = {};  // lines without a pause between them
    std::chrono::steady_clock::time_point last = {};
  };
  struct Said {
    std::string text;
    int64_t times = 1;
  };
  bool read(Source& source);
  void take(Source& source, char byte);
  void say(std::string text);
  void send();

  std::vector<Source> sources_;
  std::deque<Said> said_;  // the newest last
  std::string unsent_;
};

}  // namespace temper
