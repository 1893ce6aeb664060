#pragma once
// What this process is at, for those that watch it (comm/watch.h): a count that every piece of work moves (an
// engine step, a micro-batch, a tensor read or written), the phase, and what it waits for. There is one per
// process, as there is one set of signals: work in any layer and on any thread moves it, a thread beside
// reads it.

#include <cstdint>
#include <string_view>

namespace temper {

enum class Phase : int32_t { start, load, rollout, reference, train, sync, save, exported };
const char* phase_name(Phase phase);

/// From here on the process is in this phase of `step` (0: none).
void enter_phase(Phase phase, int64_t step = 0);
/// A piece of work is done; a wait, if there was one, is over.
void note_progress();
/// The process waits for other ranks until it makes progress again. `where`: the ranks, or the axis.
void note_wait(std::string_view what, std::string_view where);

/// Plain bytes: it travels.
struct ProgressState {
  uint64_t count = 0;
  int64_t step = 0;
  Phase phase = Phase::start;
  int32_t waits = 0;
  char what[80] = {}, where[80] = {};  // of the wait that is under way
};
ProgressState progress_state();

}  // namespace temper
