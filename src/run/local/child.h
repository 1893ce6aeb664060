#pragma once
// A program that this process starts, listens to and does not leave behind.

#include <sys/types.h>

#include <string>
#include <vector>

namespace temper {

struct Child {
  pid_t pid = -1;   // the process, and the group of its own that it is in
  int output = -1;  // its stdout and stderr together: a pipe, not blocking
};

/// `program` is a path; `environment`: NAME=VALUE. Its stdin is empty. A terminal's signals do not reach it,
/// and SIGTERM, SIGINT, SIGHUP and SIGUSR1 wait: `pkill -f` means this process, which alone decides about an
/// end. Linux kills it when this process ends. Exit::environment where it cannot be started.
Child start_child(const std::string& program, const std::vector<std::string>& argv,
                  const std::vector<std::string>& environment);

/// Appends what has come to `text`, of which `most` bytes are kept. False: nothing more comes.
bool read_child(const Child& child, std::string& text, size_t most);

/// The exit code; 128 + N where signal N ended it. -1: it runs.
int ended_child(const Child& child);

}  // namespace temper
