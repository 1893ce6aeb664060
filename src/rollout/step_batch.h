#pragma once
// The rows of one step as a packed batch over the cache.

#include <vector>

#include "src/models/layer_pass.h"
#include "src/rollout/sampler.h"
#include "src/rollout/scheduler.h"

namespace temper {

/// For a timeline, how many sequences behind it: a row of each is decoding, several are a prompt's prefill.
const char* work_of_step(std::span<const ScheduledRows> step);

class StepBatch {
 public:
  explicit StepBatch(std::span<const ScheduledRows> step);

  int64_t num_rows() const { return std::ssize(tokens_); }
  /// Final hidden states [T, D], or the stream [T, D] after a part without the last layers, from `x` before
  /// the part; what its layers keep of the rows is in the cache then. `routers`: of the rows.
  Tensor forward(Ctx& c, const ModelPart& part, const KvCache& cache, const Tensor& x = {},
                 const RouterNotes* routers = nullptr) const;
  /// Last rows of sequences that have none missing after this step.
  const std::vector<DrawTarget>& last_rows() const { return last_rows_; }

 private:
  std::vector<int32_t> tokens_, positions_, cu_seqlens_{0}, page_table_, lengths_;
  std::vector<int32_t> tails_, read_slots_, written_slots_;  // of sequences with a state
  std::vector<DrawTarget> last_rows_;
};

}  // namespace temper
