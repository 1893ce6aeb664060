#pragma once
// What programs write to stderr, as it comes out at that of the process that keeps them: whole lines, in
// which a terminal finds nothing to obey. Nothing here waits: where stderr takes no more, programs wait.

#include <poll.h>

#include <string>
#include <vector>

namespace temper {

class ErrorLines {
 public:
  /// Takes the end of a pipe, not blocking, that a program writes to.
  void add(int descriptor);
  /// What there is to wait for.
  void add_to(std::vector<pollfd>& wanted) const;
  /// Passes on what has come, at most kBlock bytes of each pipe. False: there was nothing.
  bool pass_on();

 private:
  static constexpr size_t kBlock = 4096;

  struct Source {
    int descriptor;
    std::string line = {};  // begun
    bool returned = false;  // the byte before was a carriage return
  };
  bool read(Source& source);
  void take(Source& source, char byte);

  std::vector<Source> sources_;
  std::string unsent_;
};

}  // namespace temper
