#pragma once
// The steps of a run on a rank with roles.

#include "src/run/session/saver.h"

namespace temper {

/// Where each function of the session that works on a step begins.
struct RunSteps {
  explicit RunSteps(RunRank& run_rank) : rank(run_rank), saver(run_rank) {}

  RunRank& rank;
  Saver saver;
};

}  // namespace temper
