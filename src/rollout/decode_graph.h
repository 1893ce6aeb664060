#pragma once
// Decode steps on a GPU: one row of every sequence through model and head. Inputs lie at fixed addresses, one
// block per bucket, so that the launches of a bucket are recorded the second time and replayed from then on,
// as long as the engine lives: weights may change in their place. A bucket is what the launches depend on:
// rows and pages per sequence (rounded up), the ids that may be drawn, filters or none; all else is data.
// Padding rows write to the cache's scratch page and tail. Neither bucket nor replay shows in a bit.

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "src/models/model.h"
#include "src/rl/routes.h"
#include "src/rollout/kv_cache.h"
#include "src/rollout/sampler.h"

namespace temper {

/// The last token of a sequence, where it stands, what the cache has of the sequence, and how its successor
/// is drawn.
struct DecodeRow {
  int32_t token = 0, position = 0;
  std::span<const int32_t> pages;
  HeldState state = {};
  SampleRow sample;
};

class DecodeGraphs {
 public:
  /// What goes through host memory between ranks cannot be recorded.
  static bool can_record(const Model& model);
  /// `routes`: the experts of all rows are recorded; without layers: they are not.
  DecodeGraphs(const Model& model, const KvCache& cache, Lane& lane, const RouteShape& routes);
  ~DecodeGraphs();

  /// Draws one token for each row, on the lane of the engine. Waits for the result.
  DrawnTokens run(Ctx& c, std::span<const DecodeRow> rows, int64_t num_sampleable);
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
    int64_t rows, pages, num_sampleable;
    bool filters;
    auto operator<=>(const Key&) const = default;
  };

  Bucket& bucket_for(std::span<const DecodeRow> rows, int64_t num_sampleable);
  void fill(const Bucket& b, std::span<const DecodeRow> rows) const;
  void submit(const Bucket& b);

  const Model& model_;
  const KvCache& cache_;
  Lane& lane_;  // whose workspaces are recorded
  RouteShape routes_;
  std::span<const int32_t> chosen_ = {};
  /// Recorded launches hold addresses of it: no one else may use it, and every step begins at its start.
  Arena scratch_;
  Arena blocks_;
  std::map<Key, std::unique_ptr<Bucket>> buckets_;
  int64_t captures_ = 0;
};

}  // namespace temper
