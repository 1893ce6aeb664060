#pragma once
// The rows of one step as a packed batch over the cache.

#include <vector>

#include "src/models/model.h"
#include "src/nn/parallel/pipeline.h"
#include "src/rollout/sampler.h"
#include "src/rollout/scheduler.h"

namespace temper {

class StepBatch {
 public:
  explicit StepBatch(std::span<const ScheduledRows> step);

  /// Final hidden states [T, D], or the stream for the next stage; the keys and values of the rows are in the
  /// cache then.
  Tensor forward(Ctx& c, const Model& model, const KvCache& cache, const Pipeline& pipeline) const;
  /// Last rows of sequences that have none missing after this step.
  const std::vector<DrawTarget>& last_rows() const { return last_rows_; }

 private:
  std::vector<int32_t> tokens_, positions_, cu_seqlens_{0}, page_table_, lengths_;
  std::vector<DrawTarget> last_rows_;
};

}  // namespace temper
