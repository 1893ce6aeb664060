#pragma once
// Memory for what a rank of a pipeline makes for others, until it is sent (train/schedule.h).

#include <vector>

#include "src/models/model.h"
#include "src/nn/parallel/pipeline.h"
#include "src/train/microbatch.h"
#include "src/train/schedule.h"

namespace temper {

class StageBorders {
 public:
  /// `number` places in scratch, each for any of these micro-batches.
  StageBorders(Ctx& c, const Model& model, std::span<const Trajectory* const> all,
               const std::vector<std::vector<int32_t>>& microbatches, int number);

  /// Where the step of this time puts what it makes for another rank of this micro-batch; none: nothing.
  Tensor take(const ScheduleSlot& time, const Microbatch& mb);
  /// What is sent at this time, of the first `own` micro-batches: there are no others here.
  std::vector<Parcel> sent(const ScheduleSlot& time, size_t own) const;

 private:
  const Model& model_;
  std::vector<Tensor> places_, made_;
};

}  // namespace temper
