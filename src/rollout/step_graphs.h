#pragma once
// Steps of generation on a GPU, through model and head: a row of each sequence that decodes, and with them
// few rows of prompts, such as what a turn brings. Inputs lie at fixed addresses, one block per bucket, so
// that the launches of a bucket are recorded the second time and replayed from then on, as long as the engine
// lives: weights may change in their place. A bucket is what the launches depend on: rows, sequences,
// draws and pages per sequence (rounded up), the ids that may be drawn, filters or none; all else is data.
// Padding rows write to the cache's scratch page and tail. Neither bucket nor replay shows in a bit.

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "src/models/model.h"
#include "src/rl/routes.h"
#include "src/rollout/kv_cache.h"
#include "src/rollout/step_batch.h"

namespace temper {

/// What follows a row of a step is drawn like this.
struct StepDraw {
  int32_t row = 0;
  SampleRow sample;
};

class StepGraphs {
 public:
  /// Rows of a step beyond one of each sequence. With more of them starting the kernels takes no time beside
  /// running them.
  static constexpr int64_t kMostPrefilled = 512;

  /// Rows of a recorded step, padding included; `prefilled`: beyond one of each sequence, of which as a
  /// rule so many run at most.
  static int64_t padded_rows(int64_t sequences, int64_t prefilled, int64_t most_sequences);
  /// What goes through host memory between ranks cannot be recorded.
  static bool can_record(const Model& model);
  /// `routes`: the experts of all rows are recorded; without layers: they are not.
  StepGraphs(const Model& model, const KvCache& cache, Lane& lane, int64_t most_sequences,
             const RouteShape& routes);
  ~StepGraphs();

  /// On the lane of the engine; at most as many draws as sequences. Waits for the result.
  DrawnTokens run(Ctx& c, const StepLists& step, std::span<const StepDraw> draws, int64_t num_sampleable);
  /// The experts of the rows that ran last: [L, at least as many rows, K].
  std::span<const int32_t> chosen() const { return chosen_; }
  /// Steps that were recorded so far.
  int64_t captures() const { return captures_; }
  /// Lends the scratch memory, whose addresses the recorded steps know, until the next step.
  void suspend() { scratch_.suspend(lane_); }
  int64_t held_bytes() const { return scratch_.held_bytes() + blocks_.held_bytes(); }

 private:
  struct Bucket;
  struct Key {
    int64_t rows, sequences, draws, pages, num_sampleable;
    bool filters;
    auto operator<=>(const Key&) const = default;
  };

  Key key_of(const StepLists& step, std::span<const StepDraw> draws, int64_t num_sampleable) const;
  Bucket& bucket_of(const Key& key);
  void fill(const Bucket& b, const StepLists& step, std::span<const StepDraw> draws) const;
  void submit(const Bucket& b);

  const Model& model_;
  const KvCache& cache_;
  Lane& lane_;  // whose workspaces are recorded
  int64_t most_sequences_;
  RouteShape routes_;
  std::span<const int32_t> chosen_ = {};
  /// Recorded launches hold addresses of it: no one else may use it, and every step begins at its start.
  Arena scratch_;
  Arena blocks_;
  std::map<Key, std::unique_ptr<Bucket>> buckets_;
  int64_t captures_ = 0, captures_with_prefill_ = 0;
};

}  // namespace temper
