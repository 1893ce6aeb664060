#pragma once
// Pages of keys and values with reference counts, and beside them the states of gated delta nets. A page is
// written only by its single holder: a holder of a shared page takes a private copy first (copy on write).
// Layout of a page: PagedKv in kernels/types.h.

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/types.h"
#include "src/core/arena.h"
#include "src/core/lane.h"
#include "src/models/model.h"
#include "src/rollout/page_index.h"
#include "src/rollout/state_cache.h"

namespace temper {

/// What a model keeps of a token: in each layer with attention so many elements of keys, and of values.
struct KvShape {
  int64_t layers = 0, width = 0;
  DType storage = DType::f32;

  explicit KvShape(const Model& model);
  /// What a rank has with these parts of the model, as one of so many that share its heads.
  KvShape(const ModelConfig& config, const LayerRanges& parts, int tp_ranks, DType type);
  KvShape(int64_t num_layers, int64_t kv_width, DType type)
      : layers(num_layers), width(kv_width), storage(type) {}
  int64_t page_bytes(int64_t page_tokens) const {
    return 2 * layers * width * page_tokens * dtype_size(storage);
  }
};

class KvCache {
 public:
  /// Pages are copied on `lane`, on which the batches run.
  /// `poison`: pages are filled with NaN when they become free (tests: nobody may read them).
  KvCache(const KvShape& shape, int64_t num_pages, int64_t page_tokens, bool poison, Lane& lane);
  ~KvCache() { lane_.settle(); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  int64_t page_tokens() const { return page_tokens_; }
  int64_t num_pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t held_bytes() const { return memory_.held_bytes() + (states_ ? states_->held_bytes() : 0); }
  /// Between generations: a GPU has no memory for the pages, which are free, until `resume`.
  void suspend() {
    forget();
    memory_.suspend(lane_);
    if (states_) states_->suspend();
  }
  void resume() {
    memory_.resume();
    if (states_) states_->resume();
  }
  /// Those that nobody holds, whatever is known of them.
  int64_t num_free() const { return static_cast<int64_t>(free_.size()) + (index_ ? index_->num_idle() : 0); }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  /// A page outside of the pool that padding rows may write to (on a GPU only).
  int32_t scratch_page() const { return static_cast<int32_t>(num_pages()); }
  /// Others read it, or may: it is not written.
  bool shared(int32_t page) const {
    return references_[static_cast<size_t>(page)] > 1 || (index_ && index_->knows(page));
  }

  /// From now on so many sequences have states beside their pages, where the model has gated delta nets.
  void keep_states(const Model& model, int64_t sequences) {
    if (!model.config().delta.layers.empty()) states_.emplace(StateShape(model), sequences, poison_, lane_);
  }
  /// Null where models have none.
  StateCache* states() { return states_ ? &*states_ : nullptr; }
  const StateCache* states() const { return states_ ? &*states_ : nullptr; }

  /// From now on pages are found by the ids in them, until `forget`; not where a state is needed beside them.
  void find_pages_by_ids() {
    if (!states_) index_.emplace(page_tokens_, num_pages());
  }
  bool finds_pages() const { return index_.has_value(); }
  /// The longest beginning of `tokens` that is in the cache, with a reference to each of its pages.
  PageIndex::Found find(std::span<const int32_t> tokens);
  /// The pages hold the first `rows` of `tokens`; `ended`: the last one does not grow.
  void note(std::span<const int32_t> tokens, std::span<const int32_t> pages, int64_t rows, bool ended,
            Noted& noted) {
    if (index_) index_->note(tokens, pages, rows, ended, noted);
  }
  /// The single holder of a known page may write to it from now on: nobody finds it any more. False where
  /// others hold it, or nothing is known of it.
  bool unlearn(int32_t page);
  /// What is known of pages holds no longer: other weights come.
  void forget();

  int32_t take();              // one reference; there must be a free page
  void retain(int32_t page);   // one more reference
  void release(int32_t page);  // free again after the last reference
  /// A private copy of a page; the reference to the original is given back.
  int32_t copy(int32_t page);

  /// View for the kernels; page table and lengths are the batch's.
  PagedKv view(CTensor page_table, CTensor lengths) const;

 private:
  void poison_page(int32_t page) const;
  void free(int32_t page);

  Lane& lane_;
  int64_t page_tokens_;
  bool poison_;
  Arena memory_;
  Tensor keys_, values_;  // [L, num_pages, Hkv * page_tokens * dh]
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;  // a stack
  std::optional<PageIndex> index_;
  std::optional<StateCache> states_;
};

}  // namespace temper
