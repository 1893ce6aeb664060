#pragma once
// Plain structs that ops and kernels share.

#include <span>

#include "src/core/flat_range.h"
#include "src/core/rng.h"
#include "src/core/tensor.h"

namespace temper {

/// Ids whose statistics in the head are one entry; ranks share a vocabulary in whole chunks.
inline constexpr int64_t kVocabularyChunk = 2048;
inline int64_t num_chunks(int64_t ids) { return (ids + kVocabularyChunk - 1) / kVocabularyChunk; }

/// The rows [first, first + rows of w) of a table by token id that a rank has, of `ids` in all.
struct VocabularyShare {
  int64_t first = 0, ids = 0;
};

/// Heads of one attention layer. A qkv row is [Hq*dh | Hkv*dh | Hkv*dh]; query head h reads kv head h /
/// (Hq/Hkv).
struct AttentionShape {
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t q_width() const { return q_heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

/// The outputs of a product that have adapters, block by block: rows [to, to + rows) of the product's weights
/// are rows from `from` on of B.
struct AdapterBlocks {
  static constexpr int kMost = 3;  // q, k and v
  int count = 0;
  int64_t to[kMost] = {}, from[kMost] = {}, rows[kMost] = {};
};

/// What adapters add to the outputs of a product: scale u V^T, where V is block diagonal, of these blocks of b.
struct LowProduct {
  CTensor u, b;
  double scale = 0;
  AdapterBlocks blocks = {};
};

/// Where rows stand and the tables of their rotation.
struct RopeInput {
  CTensor positions;     // [T] i32
  CTensor cosine, sine;  // [max_positions, dh/2], accumulate dtype
};

/// Paged cache of keys (after norm and rope) and values, of all layers, for S running sequences.
/// Page p of layer l:   keys   [Hkv, page_tokens/16, dh, 16]  (groups of 16 positions, position innermost)
///                      values [Hkv, page_tokens, dh]
/// On a GPU the keys lie as the values do, [Hkv, page_tokens, dh].
/// Absolute position t of sequence s lives in page page_table[s, t / page_tokens], slot t % page_tokens.
struct PagedKv {
  Tensor keys, values;       // [L, num_pages, Hkv * page_tokens * dh] each, storage dtype
  CTensor page_table;        // [S, P] i32
  CTensor lengths;           // [S] i32: tokens in the cache after the rows of this batch were appended
  int64_t page_tokens = 16;  // multiple of kKeyGroup
};
inline constexpr int64_t kKeyGroup = 16;

/// Penalties and filters of one sampled row; their order is in src/ops/sample.h.
struct SampleOptions {
  double temperature = 1.0;         // 0 = greedy
  int32_t top_k = 0;                // <= 0: off
  double top_p = 1.0;               // >= 1: off
  double min_p = 0.0;               // <= 0: off
  double repetition_penalty = 1.0;  // 1: off
  double frequency_penalty = 0.0;   // 0: off
  double presence_penalty = 0.0;    // 0: off

  /// Ids are left out of the draw by their probability.
  bool filters() const { return temperature != 0 && (min_p > 0 || top_k > 0 || top_p < 1); }
};

/// One id whose logit is changed before it is drawn from.
struct LogitEdit {
  int32_t id = 0;
  int32_t count = 0;  // times that it is in the response
  bool seen = false;  // it is in the prompt or the response
  double bias = 0.0;  // -infinity: never drawn
};

/// One row to sample: whose random numbers, at which response position.
struct SampleRow {
  SampleKey key;
  uint32_t position = 0;  // index of the sampled token in the response
  SampleOptions options;
  std::span<const LogitEdit> edits = {};  // ids ascending
};

/// The rows of one call: on the host and, for a GPU, the same list in its memory (but for the spans of edits:
/// those of row r are edits_on_device[edit_ends[r], edit_ends[r + 1]); null without any).
struct SampleRows {
  std::span<const SampleRow> list;
  const SampleRow* on_device = nullptr;
  const LogitEdit* edits_on_device = nullptr;
  const int32_t* edit_ends = nullptr;
  // Rows with filters before each row. Null: a GPU takes every row for one, if one of the list has some.
  const int32_t* filtered_before = nullptr;
  int64_t first = 0;  // number of list[0] in the batch: errors name it

  SampleRows part(int64_t begin, int64_t end) const {
    const auto from = [&](auto* at) { return at ? at + begin : nullptr; };
    return {list.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
            from(on_device),
            edits_on_device,
            from(edit_ends),
            from(filtered_before),
            first + begin};
  }
};

/// What the chunks of a vocabulary, or of a share of it, say of n rows to sample. Tempered logits of rows
/// with filters are kept: the filters need all of them.
struct SampleChunks {
  Tensor best;  // [chunks, n, 6]: max, sum, weighted of the statistics; of a row without filters the score
                // of its best id, its t before edits, and its place in the chunk (-1: none)
  Tensor kept;  // [chunks, rows with filters, kVocabularyChunk]: t to draw from; empty without such rows
  Tensor unedited;  // the same before edits; empty where no such row has any

  SampleChunks part(int64_t begin, int64_t end) const {
    const auto of = [&](const Tensor& t) { return t.empty() ? t : rows(t, begin, end); };
    return {of(best), of(kept), of(unedited)};
  }
};

/// Whether a gradient, or a sum of them, replaces what its memory held, or is added to it.
enum class GradWrite { first, add };

/// One AdamW update (decoupled weight decay); `count` is the 1-based number of this update.
struct AdamwStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, grad_scale = 1;
  int64_t count = 1;
  // What bf16 moments are rounded by, beside `count`.
  uint64_t seed = 0;
  int64_t first_element = 0;  // number of the first element of the tensors among all of the model
};
/// Parcels from a GPU to another one that reaches its memory, or from that one (ops/peers/peer_exchange.h), at
/// most kParcels; cut into pieces of kPieceBytes. Places for kPlaces pieces lie in the inbox of the receiver:
/// for bytes as they are, and for parcels of at most kMarkedBytes, of which every four bytes have a mark
/// beside them that says whose they are, so that nothing else has to. Of counters there is one for each block
/// of a direction: pieces that have come, in the inbox of the receiver, and those that it has taken, in that
/// of the sender.
struct SmallFlow {
  static constexpr int kParcels = 8, kPlaces = 4;
  static constexpr int64_t kPieceBytes = int64_t{2} << 20, kMarkedBytes = int64_t{128} << 10;
  void* data[kParcels] = {};
  int64_t bytes[kParcels] = {};
  int count = 0;
  char *places = nullptr, *marked_places = nullptr;  // of kPieceBytes, of 2 kMarkedBytes
  uint32_t *theirs = nullptr, *ours = nullptr;  // counters: one that this GPU writes, one that it waits for
  uint32_t* turn = nullptr;                     // pieces so far, per block, for this GPU alone
};
inline constexpr int kSmallBlocks = 32, kMostFlows = 15;  // of each direction
/// A sum over ranks, in their order: what this rank has of it, and where it goes, as in sum_in_order
/// (ops/elementwise.h). `to` may be `own`.
struct RankSum {
  Tensor to;    // [n]
  CTensor own;  // [n], of to's dtype or of its accumulate dtype
  int rank = 0;
  GradWrite write = GradWrite::first;

  /// Elements [begin, begin + count) of it.
  RankSum piece(int64_t begin, int64_t count) const {
    return {rows(to, begin, begin + count), rows(own, begin, begin + count), rank, write};
  }
};

/// Elements whose moments share a block of random numbers: `first_element` is a multiple of it.
inline constexpr int64_t kMomentGroup = 4;

}  // namespace temper
