// Digests: memory-bound, 16 bytes a thread and turn where the data lies for it.

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/digest.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256, kBlocks = 8 * 132;  // each multiprocessor full
constexpr int64_t kPair = 2 * kDigestWord;

/// `count` bytes from `p` on, at most a word's.
TEMPER_DEVICE uint64_t word_of_bytes(const uint8_t* p, int64_t count) {
  uint64_t word = 0;
  for (int b = 0; b < kDigestWord && b < count; ++b) word |= uint64_t{p[b]} << (8 * b);
  return word;
}

template <bool kAligned>
__global__ void digest_kernel(unsigned long long* sum, const uint8_t* x, int64_t bytes, uint64_t first) {
  begin_kernel();
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x, step = gridDim.x * int64_t{kThreads};
  const int64_t pairs = bytes / kPair;
  uint64_t mine = 0;
  for (int64_t i = thread; i < pairs; i += step) {
    ulonglong2 words;
    if constexpr (kAligned)
      words = reinterpret_cast<const ulonglong2*>(x)[i];
    else
      words = {word_of_bytes(x + i * kPair, kDigestWord),
               word_of_bytes(x + i * kPair + kDigestWord, kDigestWord)};
    const uint64_t number = first + 2 * static_cast<uint64_t>(i);
    mine += digest_of_word(words.x, number) + digest_of_word(words.y, number + 1);
  }
  if (thread == 0)
    for (int64_t at = pairs * kPair; at < bytes; at += kDigestWord)
      mine +=
          digest_of_word(word_of_bytes(x + at, bytes - at), first + static_cast<uint64_t>(at / kDigestWord));
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(mine));
}

}  // namespace

void add_digest(Ctx& ctx, Tensor sum, CTensor x, int64_t first) {
  const int64_t bytes = x.bytes(), pairs = bytes / kPair;
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % kPair == 0;
  const int blocks = static_cast<int>(std::clamp<int64_t>((pairs + kThreads - 1) / kThreads, 1, kBlocks));
  launch(ctx.lane, aligned ? digest_kernel<true> : digest_kernel<false>, blocks, kThreads, 0,
         data_of<unsigned long long>(sum), data_of<uint8_t>(x), bytes, static_cast<uint64_t>(first));
}

}  // namespace temper::cuda
