#pragma once
// The order in which a stage of a pipeline works on the micro-batches of an update, as a list that can be
// counted and shown: 1F1B (PipeDream-Flush; Megatron-LM's default). Stage s of p begins with p - 1 - s
// forwards, then takes a forward and a backward in turn, so that at most p - s micro-batches are kept at
// once. With forwards of time f and backwards of time b the stages are idle for (p - 1)(f + b) of an update.

#include <cstdint>
#include <vector>

namespace temper {

struct ScheduleStep {
  bool backward = false;
  int64_t microbatch = 0;
};

/// Both passes over each micro-batch, in ascending order. One stage: forward and backward of each in turn.
std::vector<ScheduleStep> one_forward_one_backward(int stage, int stages, int64_t microbatches);

/// Micro-batches that a stage keeps at once, at most.
inline int64_t most_kept(int stage, int stages) { return stages - stage; }

}  // namespace temper
