#pragma once
// Generation apart from the trainer, with a lag, works with weights that the trainer has left behind. Where a
// stop cuts it the checkpoint holds these versions, so that the responses go on with the very weights they
// began with: `older/step-XXXXXX/` and a parameter, in the type that the run computes with.

#include "src/run/session/run_links.h"

namespace temper {

struct RunRank;

/// The steps that generation may be ahead by after `step`: up to `last`.
struct StepsAhead {
  int64_t step, last, lag;
};

/// Trainer ranks, after the steps ahead have settled; nothing unless one of them was cut.
void save_older_weights(RunLinks& links, const ParameterStore& weights, CheckpointWriter& checkpoint,
                        const StepsAhead& ahead);
/// The first version that a run which goes on from here generates with: its step, or an older one.
int64_t oldest_weights(const CheckpointReader& checkpoint);
/// Trainer ranks: sends them out, and where this rank generates, too, lets its role do what comes before the
/// trainer's first step. The policy's weights are others afterwards. `rollout`: restored; null on other
/// ranks.
void publish_older_weights(RunRank& rank, const CheckpointReader& checkpoint, Role* rollout);

}  // namespace temper
