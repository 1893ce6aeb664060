#pragma once
// The order in which the ranks of a pipeline work on the micro-batches of an update, as lists that can be
// counted and shown. A rank of p has one part of the model, or v (chunks): part c of rank r is number
// c * p + r of all. One part: 1F1B (PipeDream-Flush; Megatron-LM's default): rank r begins with p - 1 - r
// forwards, then takes a forward and a backward in turn, so that at most p - r micro-batches are kept. More
// parts: interleaved 1F1B (Narayanan et al., Efficient Large-Scale Language Model Training, 2021): forwards
// in groups of p micro-batches, part by part, backwards with the parts in reverse, and 2 (p - 1 - r) + (v -
// 1) p forwards ahead. With forwards of time f and backwards of time b of all parts of a rank together ranks
// are idle for (p - 1)(f + b) / v of an update; with v > 1 where p divides the micro-batches.

#include <cstdint>
#include <optional>
#include <vector>

namespace temper {

/// Ranks of a pipeline and parts of the model that each has.
struct PipelineShape {
  int ranks = 1, chunks = 1;
};

struct ScheduleStep {
  bool backward = false;
  int64_t microbatch = 0;
  int chunk = 0;
  bool operator==(const ScheduleStep&) const = default;
};

/// Both passes over each micro-batch; of a part they are in ascending order. One rank: forward and backward
/// of each in turn.
std::vector<ScheduleStep> training_steps(const PipelineShape& shape, int rank, int64_t microbatches);
/// The forwards of these alone, with as few micro-batches between two parts.
std::vector<ScheduleStep> forward_steps(const PipelineShape& shape, int rank, int64_t microbatches);
/// Pairs of micro-batch and part that a rank keeps at once, at most.
int64_t most_kept(const PipelineShape& shape, int rank, int64_t microbatches);

/// A time in which each rank makes a step or none: first it hands over what others need now, and gets what
/// its own step needs. All ranks go through these times in the same order, so that none waits in a circle,
/// whatever an exchange waits for.
struct ScheduleSlot {
  struct Send {
    int64_t microbatch = 0;
    int border = 0;  // where it lies
    int to = 0;      // rank
  };
  std::vector<Send> sends;
  std::optional<ScheduleStep> step;
  int from = -1;    // rank that sends what the step works on
  int border = -1;  // where what it makes for another rank goes, until it is sent
};
struct Schedule {
  std::vector<ScheduleSlot> slots;  // those with something to do
  int borders = 0;                  // that are in use at once
  int64_t idle = 0;                 // times without a step, until the last rank is done
};
/// The schedule of one rank, where each step is made as soon as its rank is free and its input was made.
/// `steps_of` gives the steps of a rank, training_steps or forward_steps.
Schedule schedule(const PipelineShape& shape, int rank, int64_t microbatches,
                  std::vector<ScheduleStep> (*steps_of)(const PipelineShape&, int, int64_t));

}  // namespace temper
