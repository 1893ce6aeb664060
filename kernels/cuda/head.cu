// Log-prob and entropy of target tokens: logits in windows, statistics per chunk of the vocabulary, one merge
// a row.

#include "kernels/cuda/head.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int64_t kHeadRows = 2048;
constexpr int kFinishThreads = 128;

/// Block (chunk of the window, row). logprob keeps t of the target until the log-sum-exp is known.
__global__ void __launch_bounds__(kHeadThreads)
    stats_kernel(cn::ChunkStats* stats, float* logprob, const int32_t* targets, const LogitsWindow window,
                 int chunks, float scale) {
  begin_kernel();
  __shared__ float shared[kHeadThreads / 32];
  const int64_t offset = blockIdx.x * int64_t{cn::kVocabularyChunk}, row = window.first_row + blockIdx.y;
  const int count = static_cast<int>(min(int64_t{cn::kVocabularyChunk}, window.ids - offset));
  const ThreadLogits logits(window.z + blockIdx.y * window.pitch + offset, count, scale);
  const cn::ChunkStats s = chunk_stats(logits, count, shared);
  if (threadIdx.x == 0) stats[row * chunks + (window.first_id + offset) / cn::kVocabularyChunk] = s;
  const int64_t target = targets[row] - window.first_id - offset;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
    if (ThreadLogits::id(i) == target) logprob[row] = logits.t[i];
}

__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(float* logprob, float* entropy, float* lse, const cn::ChunkStats* stats, int64_t rows,
                  int chunks) {
  begin_kernel();
  const int64_t row = blockIdx.x * int64_t{kFinishThreads / 32} + threadIdx.x / 32;
  if (row >= rows) return;
  const cn::ChunkStats all = merge_chunks(stats + row * chunks, chunks);
  if ((threadIdx.x & 31) != 0) return;
  lse[row] = cn::lse(all);
  entropy[row] = cn::entropy(all);
  logprob[row] = __fsub_rn(logprob[row], cn::lse(all));
}

}  // namespace

void logprob_forward(Ctx& ctx, Tensor logprob, Tensor entropy, Tensor lse, CTensor hidden, CTensor w,
                     CTensor targets, double temperature) {
  ArenaScope scope(ctx.scratch);
  const int64_t n = hidden.dim(0), chunks = num_chunks(w.dim(0));
  auto* stats =
      static_cast<cn::ChunkStats*>(ctx.scratch.allocate(n * chunks * int64_t{sizeof(cn::ChunkStats)}));
  for_each_window(ctx, hidden, w, kHeadRows, [&](const LogitsWindow& window) {
    launch(ctx.lane, stats_kernel,
           dim3(static_cast<unsigned>(num_chunks(window.ids)), static_cast<unsigned>(window.rows)),
           kHeadThreads, 0, stats, logprob.as<float>(), targets.as<int32_t>(), window, chunks,
           inverse_temperature(temperature));
  });
  launch(ctx.lane, finish_kernel, blocks_for(n, kFinishThreads / 32), kFinishThreads, 0, logprob.as<float>(),
         entropy.as<float>(), lse.as<float>(), stats, n, chunks);
}

}  // namespace temper::cuda
