#pragma once
// Decode steps on a GPU: one row of every sequence through model and head. Inputs lie at fixed addresses, one
// block per bucket (rows and pages per sequence, rounded up), so that the launches of a bucket are recorded
// the second time and replayed from then on. Padding rows write to the cache's scratch page. Neither bucket
// nor replay shows in a bit.

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "src/models/model.h"
#include "src/rollout/kv_cache.h"

namespace temper {

/// The last token of a sequence, where it stands, the pages of the sequence, and how its successor is drawn.
struct DecodeRow {
  int32_t token = 0, position = 0;
  std::span<const int32_t> pages;
  SampleRow sample;
};

struct DrawnTokens {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

class DecodeGraphs {
 public:
  DecodeGraphs(const Model& model, const KvCache& cache, int64_t num_sampleable);
  ~DecodeGraphs();

  /// Always with the same context and the same state of its arena. Waits for the result.
  DrawnTokens run(Ctx& c, std::span<const DecodeRow> rows);

 private:
  struct Bucket;
  using Key = std::pair<int64_t, int64_t>;  // rows, pages per sequence

  Bucket& bucket_for(std::span<const DecodeRow> rows);
  void fill(const Bucket& b, std::span<const DecodeRow> rows) const;
  void submit(Ctx& c, const Bucket& b) const;

  const Model& model_;
  const KvCache& cache_;
  int64_t num_sampleable_;
  Arena memory_;
  std::map<Key, std::unique_ptr<Bucket>> buckets_;
};

}  // namespace temper
