#pragma once
// The keeper of helper programs (see helpers.h) and what is said to it. A request is one packet: its letter,
// then the words of a command, each with a zero behind it, or a pid. Every request has one answer. Before the
// words of a program that is kept apart stands a KeptApart, and behind them the variables of its environment,
// likewise.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace temper {

inline constexpr char kStartProgram = 'S', kStartApart = 'A', kEndProgram = 'E';
inline constexpr size_t kMaxRequest = 128 << 10;

struct KeptApart {
  uint32_t words;  // of the command
};

/// pid > 0: started, its pipes come along: input, output, and of one that is kept apart errors and exited.
/// pid 0: `error` is the errno of what failed, or 0.
struct KeeperAnswer {
  pid_t pid = 0;
  int error = 0;
};

/// The life of the keeper, in a fork of `parent`: never returns.
[[noreturn]] void keep_programs(int socket, pid_t parent);

}  // namespace temper
