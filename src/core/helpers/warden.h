#pragma once
// The warden of a program that is kept apart: a process between the keeper and the program, which makes its
// folder, is the parent of all that loses its own below it, says how the program ended, and ends with it what
// is left.

#include <sys/types.h>

#include <string>
#include <vector>

namespace temper {

struct WardenOrder {
  char** argv;
  std::vector<std::string> variables;  // "NAME=VALUE"
  // Ends of pipes, all closed on exec.
  int input, output, errors;  // of the program
  int status;  // gets a StartStatus of the warden, and one of the program that cannot be started
  int exited;  // gets what waitpid says of the program
};

/// error 0: the program has this pid. Else it is the errno of what failed.
struct StartStatus {
  pid_t pid = 0;
  int error = 0;
};

/// The life of a warden, in a fork of `keeper`: never returns. SIGTERM, which it also gets when the keeper
/// dies, is its order to end all: the program gets SIGTERM, kGraceMs later what still lives SIGKILL, and the
/// folder goes.
inline constexpr int kGraceMs = 1000;
[[noreturn]] void watch_program(const WardenOrder& order, pid_t keeper);

}  // namespace temper
