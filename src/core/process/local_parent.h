#pragma once
// The way from a rank to the process that a user has started with `--local N` (run/local/local_job.h): its
// parent, with the launcher in between. A rank takes the parent's own stdin, stdout and stderr in the place
// of the pipes of the launcher, so that a terminal, a file and a closed pipe are to it what they are to the
// user. It tells the parent when a signal would save, and its exit code, which a launcher loses. It does not
// outlive the parent: Linux kills it then, whatever it is at.

#include <cstdint>

namespace temper {

/// Names the parent's socket to the ranks, in the abstract namespace.
inline constexpr const char* kLocalParentVariable = "TEMPER_LOCAL_PARENT";

/// What a rank says, as bytes of one message.
struct RankWord {
  enum Kind : int32_t {
    hello,   // value: the rank
    asks,    // from here on a signal saves
    done,    // value: the exit code; the rank ends in order
    failed,  // value: the exit code; others end with it
  };
  Kind kind = hello;
  int32_t value = 0;
};

/// Where the variable is set, and nothing elsewhere. At the start of main: before anything is printed and
/// before there are threads. Exit::environment where the parent is gone.
void join_local_parent();
bool has_local_parent();
/// From any thread and from a signal handler; nothing without a parent.
void tell_local_parent(RankWord::Kind kind, int32_t value = 0);
/// Ends the process at once; the parent knows the code. From a signal handler, too.
[[noreturn]] void leave_at_once(int code);

}  // namespace temper
