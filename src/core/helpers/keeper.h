#pragma once
// The keeper of helper programs (see helpers.h) and what is said to it. A request is one packet: its letter,
// then the words of a command, each with a zero behind it, or a pid. Every request has one answer.

#include <sys/types.h>

#include <cstddef>

namespace temper {

inline constexpr char kStartProgram = 'S', kEndProgram = 'E';
inline constexpr size_t kMaxRequest = 64 << 10;

/// pid > 0: started, its pipes come along. pid 0: `error` is the errno of what failed, or 0.
struct KeeperAnswer {
  pid_t pid = 0;
  int error = 0;
};

/// The life of the keeper, in a fork of `parent`: never returns.
[[noreturn]] void keep_programs(int socket, pid_t parent);

}  // namespace temper
