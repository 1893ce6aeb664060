// Log-prob and entropy of target tokens: logits in windows, statistics per chunk of the vocabulary, one merge
// a row.

#include "kernels/cuda/head.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kFinishThreads = 128;

/// Statistics of row i in chunk c are at [i * row + c * chunk].
struct StatsTable {
  cn::ChunkStats* at;
  int64_t row, chunk;
};

/// Block (chunk of the window, row). target_logit gets t of the targets in the share that begins at `first`.
__global__ void __launch_bounds__(kHeadThreads)
    stats_kernel(const StatsTable stats, float* target_logit, const int32_t* targets,
                 const LogitsWindow window, int64_t first, float scale) {
  begin_kernel();
  __shared__ float shared[kHeadThreads / 32];
  const int64_t offset = blockIdx.x * int64_t{cn::kVocabularyChunk}, row = window.first_row + blockIdx.y;
  const int count = static_cast<int>(min(int64_t{cn::kVocabularyChunk}, window.ids - offset));
  const ThreadLogits logits(window.z + blockIdx.y * window.pitch + offset, count, scale);
  const cn::ChunkStats s = chunk_stats(logits, count, shared);
  if (threadIdx.x == 0)
    stats.at[row * stats.row + (window.first_id + offset) / cn::kVocabularyChunk * stats.chunk] = s;
  const int64_t target = targets[row] - first - window.first_id - offset;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (ThreadLogits::id(i) == target) target_logit[row] = logits.t[i];
}

__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(float* logprob, float* entropy, float* lse, const StatsTable stats,
                  const float* target_logit, int64_t rows, int chunks) {
  begin_kernel();
  const int64_t row = blockIdx.x * int64_t{kFinishThreads / 32} + threadIdx.x / 32;
  if (row >= rows) return;
  const cn::ChunkStats all = merge_chunks(stats.at + row * stats.row, chunks, stats.chunk);
  if ((threadIdx.x & 31) != 0) return;
  lse[row] = cn::lse(all);
  entropy[row] = cn::entropy(all);
  logprob[row] = __fsub_rn(target_logit[row], cn::lse(all));
}

__global__ void fill_kernel(float* x, int64_t count, float value) {
  begin_kernel();
  const int64_t i = blockIdx.x * int64_t{kFinishThreads} + threadIdx.x;
  if (i < count) x[i] = value;
}

void fill_stats(Ctx& ctx, const StatsTable& stats, float* target_logit, const CTensor& hidden,
                const CTensor& w, const int32_t* targets, double temperature, int64_t first) {
  for_each_window(ctx, hidden, w, kLogprobRows, [&](const LogitsWindow& window) {
    launch(ctx.lane, stats_kernel,
           dim3(static_cast<unsigned>(num_chunks(window.ids)), static_cast<unsigned>(window.rows)),
           kHeadThreads, 0, stats, target_logit, targets, window, first, inverse_temperature(temperature));
  });
}

void finish(Ctx& ctx, const Tensor& logprob, const Tensor& entropy, const Tensor& lse,
            const StatsTable& stats, const float* target_logit, int chunks) {
  launch(ctx.lane, finish_kernel, blocks_for(logprob.dim(0), kFinishThreads / 32), kFinishThreads, 0,
         logprob.as<float>(), entropy.as<float>(), lse.as<float>(), stats, target_logit, logprob.dim(0),
         chunks);
}

}  // namespace

void logprob_forward(Ctx& ctx, Tensor logprob, Tensor entropy, Tensor lse, CTensor hidden, CTensor w,
                     CTensor targets, double temperature) {
  ArenaScope scope(ctx.scratch);
  const int64_t n = hidden.dim(0), chunks = num_chunks(w.dim(0));
  const Tensor memory = logprob_forward_scratch(ctx.scratch, n, w.dim(0));
  const StatsTable stats{reinterpret_cast<cn::ChunkStats*>(memory.as<float>()), chunks, 1};
  // logprob keeps t of the target until the log-sum-exp is known.
  fill_stats(ctx, stats, logprob.as<float>(), hidden, w, targets.as<int32_t>(), temperature, 0);
  finish(ctx, logprob, entropy, lse, stats, logprob.as<float>(), static_cast<int>(chunks));
}

void logprob_stats(Ctx& ctx, Tensor stats, Tensor target_logit, CTensor hidden, CTensor w, CTensor targets,
                   double temperature, VocabularyShare share) {
  const int64_t n = hidden.dim(0);
  static_assert(sizeof(cn::ChunkStats) == 3 * sizeof(float));
  launch(ctx.lane, fill_kernel, blocks_for(n, kFinishThreads), kFinishThreads, 0, target_logit.as<float>(), n,
         -0.f);
  const StatsTable table{reinterpret_cast<cn::ChunkStats*>(stats.as<float>()), 1, n};
  if (w.dim(0) > 0)
    fill_stats(ctx, table, target_logit.as<float>(), hidden, w, targets.as<int32_t>(), temperature,
               share.first);
}

void logprob_merge(Ctx& ctx, Tensor logprob, Tensor entropy, Tensor lse, CTensor stats,
                   CTensor target_logit) {
  const auto* at = reinterpret_cast<const cn::ChunkStats*>(stats.as<float>());
  finish(ctx, logprob, entropy, lse, {const_cast<cn::ChunkStats*>(at), 1, logprob.dim(0)},
         target_logit.as<float>(), static_cast<int>(stats.dim(0)));
}

}  // namespace temper::cuda
