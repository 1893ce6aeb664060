// Drawing tokens on the pass of the head: statistics and best score per chunk of the vocabulary, one merge a
// row. Rows with filters keep their tempered logits; one block per row then finds the cut of each filter by
// radix selection. Edits change what is drawn from, never the statistics. A row whose logits are not finite
// gets log-prob NaN, one whose edits leave nothing to draw token -1 (the engine stops there).

#include "kernels/cuda/head.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kFinishThreads = 128, kFilterThreads = 1024;

/// The best id so far: the largest score, ties to the smaller id.
struct Draw {
  float score, t;
  int id;
  TEMPER_DEVICE void offer(const Draw& other) {
    if (other.id >= 0 && (id < 0 || other.score > score || (other.score == score && other.id < id)))
      *this = other;
  }
};
TEMPER_DEVICE Draw warp_best(Draw d) {
  for (int w = 16; w > 0; w /= 2)
    d.offer({__shfl_xor_sync(~0u, d.score, w), __shfl_xor_sync(~0u, d.t, w), __shfl_xor_sync(~0u, d.id, w)});
  return d;
}
/// Best of the block, in thread 0. `shared`: one per warp.
TEMPER_DEVICE Draw block_best(Draw d, Draw* shared) {
  d = warp_best(d);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32] = d;
  __syncthreads();
  if (threadIdx.x == 0)  // alone: it may write `shared` next
    for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) d.offer(shared[w]);
  return d;
}

/// SampleOptions::filters, on the device.
TEMPER_DEVICE bool has_filter(const SampleOptions& o) {
  return o.temperature != 0 && (o.min_p > 0 || o.top_k > 0 || o.top_p < 1);
}
TEMPER_DEVICE uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/// An element of SampleChunks::best.
struct ChunkBest {
  cn::ChunkStats stats;
  float score, t, place;
};
static_assert(sizeof(ChunkBest) == 6 * sizeof(float) && sizeof(ChunkBest) == 2 * sizeof(cn::ChunkStats));

/// The kept logits of one row, by id.
struct KeptRow {
  const float* first;
  int64_t pitch;  // from chunk to chunk
  TEMPER_DEVICE float operator[](int id) const {
    const auto at = static_cast<uint32_t>(id);
    return first[at / cn::kVocabularyChunk * pitch + at % cn::kVocabularyChunk];
  }
};

struct SamplePass {
  const SampleRow* rows;
  const LogitEdit* edits;          // of row r: [edit_ends[r], edit_ends[r + 1]), ids ascending
  const int32_t* edit_ends;        // null: no row has any
  const int32_t* filtered_before;  // null: the slot of a row is its number
  ChunkBest* best;                 // [chunks, n]
  float* kept;                     // [chunks, slots, kVocabularyChunk], null without filters
  float* unedited;                 // the same, null without filters or edits
  int64_t n, slots, num_sampleable;
  int chunks;

  TEMPER_DEVICE int64_t slot(int64_t row) const {
    return filtered_before == nullptr ? row : filtered_before[row] - filtered_before[0];
  }
  /// The place is one in `kept` or `unedited`.
  TEMPER_DEVICE int64_t place(int64_t chunk, int64_t row) const {
    return (chunk * slots + slot(row)) * cn::kVocabularyChunk;
  }
  TEMPER_DEVICE KeptRow row_of(const float* logits, int64_t row) const {
    return {logits + place(0, row), slots * cn::kVocabularyChunk};
  }
};

/// First of the edits [begin, end) with an id >= `id`.
TEMPER_DEVICE int first_edit(const LogitEdit* edits, int begin, int end, int64_t id) {
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (edits[middle].id < id)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// What a thread draws from: its tempered logits after the edits of the row. The whole block calls it;
/// `chunk` is shared memory for the logits of a chunk, z its logits as they are.
TEMPER_DEVICE void edit_chunk(float (&t)[kPerThread], const SamplePass& pass, int64_t row, int64_t first_id,
                              int count, const float* z, float* chunk) {
  const SampleOptions& o = pass.rows[row].options;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) chunk[ThreadLogits::id(i)] = t[i];
  __syncthreads();
  const int last = pass.edit_ends[row + 1];
  const int begin = first_edit(pass.edits, pass.edit_ends[row], last, first_id),
            end = first_edit(pass.edits, begin, last, first_id + count);
  for (int e = begin + static_cast<int>(threadIdx.x); e < end; e += kHeadThreads) {
    const auto i = static_cast<int>(pass.edits[e].id - first_id);
    chunk[i] = cn::tempered(cn::edited_logit(z[i], pass.edits[e], o), inverse_temperature(o.temperature));
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) t[i] = chunk[ThreadLogits::id(i)];
}

/// Block (chunk of the window, row), of the share of the vocabulary that begins at `share`.
__global__ void __launch_bounds__(kHeadThreads)
    visit_kernel(const SamplePass pass, const LogitsWindow window, int64_t share) {
  begin_kernel();
  __shared__ float shared[kHeadThreads / 32], chunk[cn::kVocabularyChunk];
  __shared__ Draw best[kHeadThreads / 32];
  const int64_t offset = blockIdx.x * int64_t{cn::kVocabularyChunk}, row = window.first_row + blockIdx.y;
  const int64_t chunk_number = (window.first_id + offset) / cn::kVocabularyChunk,
                first_id = share + window.first_id + offset;
  const int count = static_cast<int>(min(int64_t{cn::kVocabularyChunk}, window.ids - offset));
  const SampleRow& r = pass.rows[row];
  const float* z = window.z + blockIdx.y * window.pitch + offset;
  const ThreadLogits logits(z, count, inverse_temperature(r.options.temperature));
  const cn::ChunkStats s = chunk_stats(logits, count, shared);
  Draw d{0.f, 0.f, -1};
  float edited[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) edited[i] = logits.t[i];
  if (pass.edit_ends != nullptr) edit_chunk(edited, pass, row, first_id, count, z, chunk);
  if (has_filter(r.options)) {
    const int64_t to = pass.place(chunk_number, row);
    for (int i = 0; i < kPerThread; ++i) {
      if (ThreadLogits::id(i) >= count) continue;
      pass.kept[to + ThreadLogits::id(i)] = edited[i];
      if (pass.unedited != nullptr) pass.unedited[to + ThreadLogits::id(i)] = logits.t[i];
    }
  } else {
    for (int group = 0; group < kPerThread / 4; ++group) {
      const int64_t id = first_id + ThreadLogits::id(4 * group);
      uint4 words{};
      if (r.options.temperature != 0)
        words = cn::random_words(r.key, static_cast<uint32_t>(id / 4), r.position);
      for (int i = 0; i < 4; ++i) {
        const float t = edited[4 * group + i];
        if (ThreadLogits::id(4 * group + i) >= count || id + i >= pass.num_sampleable) continue;
        if (t == cn::neg_inf()) continue;  // an edit rules it out (or the row is not finite)
        d.offer({r.options.temperature != 0 ? cn::sampling_score(t, word_of(words, i)) : t,
                 logits.t[4 * group + i], static_cast<int>(id + i)});
      }
    }
  }
  d = block_best(d, best);
  if (threadIdx.x != 0) return;
  const float place = d.id < 0 ? -1.f : static_cast<float>(d.id - first_id);
  pass.best[chunk_number * pass.n + row] = {s, d.score, d.t, place};
}

__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(int32_t* tokens, float* logprob, const SamplePass pass) {
  begin_kernel();
  const int64_t row = blockIdx.x * int64_t{kFinishThreads / 32} + threadIdx.x / 32;
  const int lane = threadIdx.x & 31;
  if (row >= pass.n) return;
  const ChunkBest* of_row = pass.best + row;
  const cn::ChunkStats all = merge_chunks(&of_row->stats, pass.chunks, 2 * pass.n);
  Draw best{0.f, 0.f, -1};
  for (int c = lane; c < pass.chunks; c += 32) {
    const ChunkBest& b = of_row[c * pass.n];
    if (b.place >= 0) best.offer({b.score, b.t, c * cn::kVocabularyChunk + static_cast<int>(b.place)});
  }
  best = warp_best(best);
  if (lane != 0) return;
  const bool finite = isfinite(all.max) && isfinite(all.sum) && isfinite(all.weighted);
  tokens[row] = best.id;
  // A filtered row has its draw, and with it t, in the next kernel; until then -lse stands here.
  const float t = best.id >= 0 ? best.t : 0.f;
  logprob[row] = finite ? __fsub_rn(t, cn::lse(all)) : __int_as_float(0x7fffffff);
}

// ---- filters. Candidates are ordered by (t descending, id ascending): the order of these keys, descending.

TEMPER_DEVICE uint64_t order_key(float t, uint32_t id) {
  const uint32_t bits = __float_as_uint(t + 0.f);  // -0 becomes +0
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ascending) << 32 | static_cast<uint32_t>(~id);
}
/// Probability mass relative to the largest, in units of 2^-40: integer sums do not depend on their order.
TEMPER_DEVICE uint64_t mass(float t, float largest) {
  return static_cast<uint64_t>(static_cast<double>(expf(__fsub_rn(t, largest))) * 0x1p40);
}

/// The candidates of one row: those of [0, count) at or above two cuts.
struct Candidates {
  KeptRow t;
  int count;
  float largest;
  uint64_t least_mass = 0, least_key = 0;
  TEMPER_DEVICE bool has(int id) const {
    return order_key(t[id], static_cast<uint32_t>(id)) >= least_key &&
           (least_mass == 0 || mass(t[id], largest) >= least_mass);
  }
};

struct FilterShared {
  unsigned long long bins[256], total;
  uint64_t prefix, wanted;
  Draw best[kFilterThreads / 32];
};

/// Sum of weight(id) over the candidates; every thread gets it.
template <class Weight>
TEMPER_DEVICE uint64_t total_weight(const Candidates& c, FilterShared& shared, Weight&& weight) {
  __syncthreads();
  if (threadIdx.x == 0) shared.total = 0;
  __syncthreads();
  uint64_t sum = 0;
  for (int id = threadIdx.x; id < c.count; id += kFilterThreads)
    if (c.has(id)) sum += weight(id);
  atomicAdd(&shared.total, static_cast<unsigned long long>(sum));
  __syncthreads();
  return shared.total;
}

/// The key at which the weights of the candidates, added in order, reach `wanted`: eight bits of it a pass.
template <class Weight>
TEMPER_DEVICE uint64_t key_reaching(const Candidates& c, FilterShared& shared, uint64_t wanted,
                                    Weight&& weight) {
  if (threadIdx.x == 0) shared.prefix = 0, shared.wanted = wanted;
  for (int shift = 56; shift >= 0; shift -= 8) {
    __syncthreads();
    if (threadIdx.x < 256) shared.bins[threadIdx.x] = 0;
    __syncthreads();
    const uint64_t above = shift == 56 ? 0 : ~uint64_t{0} << (shift + 8), prefix = shared.prefix;
    for (int id = threadIdx.x; id < c.count; id += kFilterThreads) {
      const uint64_t key = order_key(c.t[id], static_cast<uint32_t>(id));
      if ((key & above) == prefix && c.has(id))
        atomicAdd(&shared.bins[key >> shift & 255], static_cast<unsigned long long>(weight(id)));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = 255;
      for (; bin > 0 && shared.bins[bin] < shared.wanted; --bin) shared.wanted -= shared.bins[bin];
      shared.prefix |= static_cast<uint64_t>(bin) << shift;
    }
  }
  __syncthreads();
  return shared.prefix;
}

/// One block per row; rows without filters have their token already.
__global__ void __launch_bounds__(kFilterThreads)
    filter_kernel(int32_t* tokens, float* logprob, const SamplePass pass) {
  begin_kernel();
  __shared__ FilterShared shared;
  const SampleRow& row = pass.rows[blockIdx.x];
  const SampleOptions& o = row.options;
  if (!has_filter(o)) return;
  Candidates c{pass.row_of(pass.kept, blockIdx.x), static_cast<int>(pass.num_sampleable), 0.f};
  Draw top{0.f, 0.f, -1};
  for (int id = threadIdx.x; id < c.count; id += kFilterThreads) top.offer({c.t[id], c.t[id], id});
  top = block_best(top, shared.best);
  if (threadIdx.x == 0) shared.best[0] = top;
  __syncthreads();
  c.largest = shared.best[0].t;
  if (c.largest == cn::neg_inf()) {  // nothing is left
    if (threadIdx.x == 0) tokens[blockIdx.x] = -1;
    return;
  }
  const auto one = [](int) { return uint64_t{1}; };
  const auto mass_of = [&](int id) { return mass(c.t[id], c.largest); };
  if (o.min_p > 0) c.least_mass = max(uint64_t{1}, static_cast<uint64_t>(o.min_p * 0x1p40));
  if (o.top_k > 0 && total_weight(c, shared, one) > o.top_k)
    c.least_key = key_reaching(c, shared, o.top_k, one);
  if (o.top_p < 1) {
    const uint64_t total = total_weight(c, shared, mass_of);
    const auto wanted = static_cast<uint64_t>(ceil(o.top_p * static_cast<double>(total)));
    c.least_key = max(c.least_key, key_reaching(c, shared, max(uint64_t{1}, wanted), mass_of));
  }
  Draw best{0.f, 0.f, -1};
  const KeptRow unedited = pass.unedited == nullptr ? c.t : pass.row_of(pass.unedited, blockIdx.x);
  for (int id = threadIdx.x; id < c.count; id += kFilterThreads)
    if (c.t[id] != cn::neg_inf() && c.has(id)) {
      const uint4 words = cn::random_words(row.key, static_cast<uint32_t>(id / 4), row.position);
      best.offer({cn::sampling_score(c.t[id], word_of(words, id % 4)), unedited[id], id});
    }
  best = block_best(best, shared.best);
  if (threadIdx.x != 0) return;
  tokens[blockIdx.x] = best.id;
  // logprob holds -lse: t - lse as one subtraction, as scoring has it.
  logprob[blockIdx.x] = __fsub_rn(best.t, -logprob[blockIdx.x]);
}

SamplePass pass_of(const SampleChunks& chunks, const SampleRows& rows, int64_t num_sampleable) {
  const bool keeps = !chunks.kept.empty();
  return {rows.on_device,
          rows.edits_on_device,
          rows.edit_ends,
          rows.filtered_before,
          reinterpret_cast<ChunkBest*>(chunks.best.as<float>()),
          keeps ? chunks.kept.as<float>() : nullptr,
          chunks.unedited.empty() ? nullptr : chunks.unedited.as<float>(),
          chunks.best.dim(1),
          keeps ? chunks.kept.dim(1) : 0,
          num_sampleable,
          static_cast<int>(chunks.best.dim(0))};
}

}  // namespace

void sample_chunks(Ctx& ctx, SampleChunks chunks, CTensor hidden, CTensor w, SampleRows rows,
                   int64_t num_sampleable, VocabularyShare share) {
  if (w.dim(0) == 0) return;
  const SamplePass pass = pass_of(chunks, rows, num_sampleable);
  for_each_window(ctx, hidden, w, hidden.dim(0), [&](const LogitsWindow& window) {
    launch(ctx.lane, visit_kernel,
           dim3(static_cast<unsigned>(num_chunks(window.ids)), static_cast<unsigned>(window.rows)),
           kHeadThreads, 0, pass, window, share.first);
  });
}

void sample_merge(Ctx& ctx, Tensor tokens, Tensor logprob, SampleChunks chunks, SampleRows rows,
                  int64_t num_sampleable) {
  const SamplePass pass = pass_of(chunks, rows, num_sampleable);
  launch(ctx.lane, finish_kernel, blocks_for(pass.n, kFinishThreads / 32), kFinishThreads, 0,
         tokens.as<int32_t>(), logprob.as<float>(), pass);
  if (pass.kept != nullptr)
    launch(ctx.lane, filter_kernel, static_cast<unsigned>(pass.n), kFilterThreads, 0, tokens.as<int32_t>(),
           logprob.as<float>(), pass);
}

}  // namespace temper::cuda
