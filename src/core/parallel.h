#pragma once
// Loops over independent pieces of work. Which thread runs a piece never changes a bit of the result, because
// no piece reads what another writes and nothing is summed across pieces.

#include <cstdint>
#include <memory>
#include <type_traits>

#include "src/core/process/progress.h"
#include "src/core/threads/thread_team.h"

namespace temper {

/// Threads that share a loop: those of a team, or the caller alone.
struct Threads {
  Threads() = default;
  Threads(ThreadTeam& t) : number(t.size()), team(t.size() > 1 ? &t : nullptr) {}  // NOLINT: those of a team
  /// Only the memory of a loop's operands is counted (Device::meta): its pieces are left out.
  static Threads counted(int number) {
    Threads threads;
    threads.number = number;
    threads.count_only = true;
    return threads;
  }
  operator int() const { return number; }  // NOLINT

  int number = 1;
  bool count_only = false;
  ThreadTeam* team = nullptr;  // none: the caller alone
};

/// body(i) for i in [0, count), as ThreadTeam::run says; never, where they only count. Each piece of the
/// caller is progress (core/process/progress.h).
template <class Body>
void parallel_for(const Threads& threads, int64_t count, Body&& body) {
  if (threads.count_only) return;
  if (!threads.team || count <= 1) {
    for (int64_t i = 0; i < count; ++i) {
      body(i);
      note_progress();
    }
    return;
  }
  using Callable = std::remove_reference_t<Body>;
  void* const callable = const_cast<void*>(static_cast<const void*>(std::addressof(body)));
  threads.team->run(
      count, [](void* b, int64_t i) { (*static_cast<Callable*>(b))(i); }, callable);
}

/// body(begin, end) over [0, count) cut in ranges of `grain` (the last one may be shorter).
template <class Body>
void parallel_ranges(const Threads& threads, int64_t count, int64_t grain, Body&& body) {
  const int64_t pieces = (count + grain - 1) / grain;
  parallel_for(threads, pieces, [&](int64_t i) {
    const int64_t begin = i * grain;
    body(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace temper
