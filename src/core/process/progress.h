#pragma once
// What this process is at, for those that watch it (comm/watch/watch.h): a count that every piece of work moves (an
// engine step, a micro-batch, a tensor read or written), the phase, and what it waits for. There is one per
// process, as there is one set of signals: work in any layer and on any thread moves it, a thread beside
// reads it. For people that wait, a phase may also say how much there is to do, and how much is done.

#include <cstdint>
#include <string_view>

namespace temper {

/// In the order in which a step passes them.
enum class Phase : int32_t { start, load, rollout, reference, train, validation, sync, save, exported };
const char* phase_name(Phase phase);

/// From here on the process is in this phase of `step` (0: none).
void enter_phase(Phase phase, int64_t step = 0);
/// In this phase of this step there is so much (more) to do: prompts, or samples. Ranks are added up.
void expect_work(int64_t pieces);
/// So many of them are done, so many tokens made or looked at; progress.
void note_work(int64_t pieces, int64_t tokens);
/// A piece of work is done; a wait, if there was one, is over.
void note_progress();
/// The process waits for other ranks until it makes progress again. `where`: the ranks, or the axis.
void note_wait(std::string_view what, std::string_view where);

/// What was to do when work was last expected: it stays when the next phase begins, for ranks that are
/// behind.
struct WorkState {
  int64_t step = 0;
  Phase phase = Phase::start;
  int64_t done = 0, total = 0, tokens = 0;
};

/// Plain bytes: it travels.
struct ProgressState {
  uint64_t count = 0;
  int64_t step = 0;
  Phase phase = Phase::start;
  int32_t waits = 0;
  WorkState work;
  char what[80] = {}, where[80] = {};  // of the wait that is under way
};
ProgressState progress_state();

}  // namespace temper
