#pragma once
// The rows of one step as a packed batch over the cache.

#include <vector>

#include "src/models/layer_pass.h"
#include "src/rollout/sampler.h"
#include "src/rollout/scheduler.h"

namespace temper {

/// For a timeline, how many sequences behind it: a row of each is decoding, several are a prompt's prefill.
const char* work_of_step(std::span<const ScheduledRows> step);

/// T rows of S sequences, and what the cache has of these.
struct StepLists {
  std::vector<int32_t> tokens, positions;                 // [T]
  std::vector<int32_t> cu_seqlens{0};                     // [S + 1]
  std::vector<int32_t> lengths;                           // [S], with the rows
  std::vector<int32_t> page_table;                        // [S, most pages of one]
  std::vector<int32_t> tails, read_slots, written_slots;  // [S], of sequences with a state

  int64_t num_rows() const { return std::ssize(tokens); }
  int64_t num_sequences() const { return std::ssize(lengths); }
  int64_t num_pages() const { return std::ssize(page_table) / num_sequences(); }
};

class StepBatch {
 public:
  explicit StepBatch(std::span<const ScheduledRows> step);

  int64_t num_rows() const { return lists_.num_rows(); }
  const StepLists& lists() const { return lists_; }
  /// Final hidden states [T, D], or the stream [T, D] after a part without the last layers, from `x` before
  /// the part; what its layers keep of the rows is in the cache then. `routers`: of the rows.
  Tensor forward(Ctx& c, const ModelPart& part, const KvCache& cache, const Tensor& x = {},
                 const RouterNotes* routers = nullptr) const;
  /// Last rows of sequences that have none missing after this step.
  const std::vector<DrawTarget>& last_rows() const { return last_rows_; }

 private:
  StepLists lists_;
  std::vector<DrawTarget> last_rows_;
};

}  // namespace temper
