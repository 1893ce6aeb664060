// Gradient of the embedding table without atomics: tokens are sorted with their places, stably, so that a run
// of one token lists its rows ascending; one block adds the rows of a run, one chain per element.

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256, kInFlight = 8;  // rows whose loads are under way together

__global__ void __launch_bounds__(kThreads)
    list_places_kernel(int32_t* places, int32_t* own, const int32_t* tokens, int count, VocabularyShare share,
                       int32_t rows) {
  begin_kernel();
  const int t = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (t >= count) return;
  // Callers check ids on the host; this keeps writes inside.
  if (tokens[t] < 0 || tokens[t] >= share.ids) __trap();
  const int64_t row = tokens[t] - share.first;
  places[t] = t;
  own[t] = row >= 0 && row < rows ? static_cast<int32_t>(row) : rows;
}

/// Block (place in the sorted list, piece of the row): works where a run begins. `tokens`: rows of dw, or
/// `none`.
template <class S>
__global__ void __launch_bounds__(kThreads)
    add_runs_kernel(float* dw, const S* dy, const int32_t* tokens, const int32_t* places, int count,
                    int64_t width, int64_t skip, int32_t none) {
  begin_kernel();
  const int begin = static_cast<int>(blockIdx.x);
  const int32_t token = tokens[begin];
  if (token == skip || token == none || (begin > 0 && tokens[begin - 1] == token)) return;
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kGroup;
  if (first >= width) return;
  const int n = static_cast<int>(min(width - first, int64_t{kGroup}));
  const bool vector = width % kGroup == 0;
  float* to = dw + token * width + first;
  float sum[kGroup];
  load_group(sum, to, n, vector);
  bool more = true;
  for (int at = begin; more; at += kInFlight) {
    RawGroup<S> raw[kInFlight];
    bool mine[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      mine[j] = at + j < count && tokens[at + j] == token;
      if (mine[j]) load_raw(raw[j], dy + int64_t{places[at + j]} * width + first, n, vector);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        if (mine[j]) sum[i] = __fadd_rn(sum[i], canonical::load(raw[j].at[i]));
    more = mine[kInFlight - 1];
  }
  store_group(to, sum, n, vector);
}

}  // namespace

void embedding_backward(Ctx& ctx, Tensor dw, CTensor dy, CTensor tokens, int64_t skip_id,
                        VocabularyShare share) {
  const int64_t count = tokens.dim(0), width = dw.dim(1);
  CHECK(count <= 0x7fffffff, "{} tokens", count);
  if (count == 0) return;
  ArenaScope scope(ctx.scratch);
  const Tensor places = ctx.scratch.make({count}, DType::i32), own = ctx.scratch.like(tokens),
               sorted = ctx.scratch.like(tokens), sorted_places = ctx.scratch.like(places);
  const auto n = static_cast<int>(count);
  const auto rows = static_cast<int32_t>(dw.dim(0));
  if (rows == 0) return;
  int bits = 1;
  while (int64_t{1} << bits <= rows) ++bits;
  size_t bytes = 0;
  const auto sort = [&](void* workspace) {
    CUDA_CHECK(cub::DeviceRadixSort::SortPairs(workspace, bytes, own.as<int32_t>(), sorted.as<int32_t>(),
                                               places.as<int32_t>(), sorted_places.as<int32_t>(), n, 0, bits,
                                               stream_of(ctx.lane)));
  };
  sort(nullptr);  // asks for the size
  void* workspace = ctx.scratch.allocate(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  launch(ctx.lane, list_places_kernel, blocks_for(count, kThreads), kThreads, 0, places.as<int32_t>(),
         own.as<int32_t>(), tokens.as<int32_t>(), n, share, rows);
  sort(workspace);
  const int threads =
      static_cast<int>(std::min<int64_t>(kThreads, (width + 32 * kGroup - 1) / (32 * kGroup) * 32));
  const auto pieces = static_cast<unsigned>(blocks_for(width, int64_t{threads} * kGroup));
  dispatch_gpu_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, add_runs_kernel<S>, dim3(static_cast<unsigned>(n), pieces), threads, 0, dw.as<float>(),
           data_of<S>(dy), sorted.as<int32_t>(), sorted_places.as<int32_t>(), n, width, skip_id - share.first,
           rows);
  });
}

}  // namespace temper::cuda
