// Small parcels between GPUs (src/ops/small_exchange.h): bound by the link, and when they are very small by
// what a write takes to the other side and back.

#include <algorithm>

#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kLooks = 1024;  // at a counter, between two at the word that stops
constexpr int kOfRound = 2;   // pieces of a flow: others are under way, or being taken

struct Flows {
  SmallFlow out[kMostFlows], in[kMostFlows];
  int num_out, num_in;
  const uint32_t* stop;
};

TEMPER_DEVICE void store_release(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
TEMPER_DEVICE void store_relaxed(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
TEMPER_DEVICE uint32_t load_acquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

/// What is written may be what is read next, for all that the compiler knows: a thread reads several words
/// before it writes the first one, so as not to wait for memory once for each.
template <class Word>
TEMPER_DEVICE void copy_words(char* to, const char* from, int64_t bytes) {
  constexpr int kAtOnce = 8;
  const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
  auto* const out = reinterpret_cast<Word*>(to);
  const auto* const in = reinterpret_cast<const Word*>(from);
  for (int64_t i = threadIdx.x; i < words; i += kAtOnce * kThreads) {
    Word word[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      if (const int64_t at = i + n * kThreads; at < words) word[n] = __ldcg(in + at);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      if (const int64_t at = i + n * kThreads; at < words) out[at] = word[n];
  }
  const int64_t rest = words * static_cast<int64_t>(sizeof(Word)) + threadIdx.x;
  if (rest < bytes) to[rest] = __ldcg(from + rest);
}
/// By all threads of a block, past the first-level cache: others have written.
TEMPER_DEVICE void copy_bytes(char* to, const char* from, int64_t bytes) {
  const auto both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (both % sizeof(uint4) == 0)
    copy_words<uint4>(to, from, bytes);
  else if (both % sizeof(uint32_t) == 0)
    copy_words<uint32_t>(to, from, bytes);
  else
    copy_words<char>(to, from, bytes);
}

/// Eight bytes of data, each half with its mark: written and read as two words that are whole or not there.
TEMPER_DEVICE void store_marked(ulonglong2* p, uint64_t data, uint32_t mark) {
  const uint64_t high = static_cast<uint64_t>(mark) << 32;
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(high | (data & 0xffffffffu)),
               "l"(high | (data >> 32))
               : "memory");
}
TEMPER_DEVICE uint64_t load_marked(const ulonglong2* p, uint32_t mark, const uint32_t* stop) {
  uint64_t a, b;
  for (int looks = 1;; ++looks) {
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
    if ((a >> 32 == mark && b >> 32 == mark) || (looks % kLooks == 0 && load_acquire(stop) != 0)) break;
  }
  return (a & 0xffffffffu) | (b << 32);
}
/// Of data that may end before eight bytes do, and lie anywhere.
TEMPER_DEVICE uint64_t load_eight(const char* p, int64_t left) {
  if (left >= 8 && reinterpret_cast<uintptr_t>(p) % 8 == 0)
    return __ldcg(reinterpret_cast<const uint64_t*>(p));
  uint64_t data = 0;
  for (int i = 0; i < min(left, int64_t{8}); ++i)
    data |= static_cast<uint64_t>(static_cast<uint8_t>(__ldcg(p + i))) << (8 * i);
  return data;
}
TEMPER_DEVICE void store_eight(char* p, uint64_t data, int64_t left) {
  if (left >= 8 && reinterpret_cast<uintptr_t>(p) % 8 == 0) {
    *reinterpret_cast<uint64_t*>(p) = data;
    return;
  }
  for (int i = 0; i < min(left, int64_t{8}); ++i) p[i] = static_cast<char>(data >> (8 * i));
}

/// Until the counter is at least `least`, by the difference of the two.
TEMPER_DEVICE void wait_for(const uint32_t* counter, uint32_t least, const uint32_t* stop) {
  for (int looks = 1; static_cast<int>(load_acquire(counter) - least) < 0; ++looks)
    if (looks % kLooks == 0 && load_acquire(stop) != 0) return;
}

TEMPER_DEVICE int pieces_of(int64_t bytes) {
  return static_cast<int>((bytes + SmallFlow::kPieceBytes - 1) / SmallFlow::kPieceBytes);
}
TEMPER_DEVICE int pieces_of(const SmallFlow& flow) {
  int pieces = 0;
  for (int p = 0; p < flow.count; ++p) pieces += pieces_of(flow.bytes[p]);
  return pieces;
}

struct Piece {
  char* data;
  int64_t bytes;
  bool marked;
};
TEMPER_DEVICE Piece piece_of(const SmallFlow& flow, int number) {
  int parcel = 0, before = 0;
  while (number - before >= pieces_of(flow.bytes[parcel])) before += pieces_of(flow.bytes[parcel++]);
  const int64_t at = (number - before) * SmallFlow::kPieceBytes, bytes = flow.bytes[parcel];
  return {static_cast<char*>(flow.data[parcel]) + at, min(SmallFlow::kPieceBytes, bytes - at),
          bytes <= SmallFlow::kMarkedBytes};
}

/// A block's share of a piece, between where it belongs and its place, which `turn` tells.
template <bool kTakes>
TEMPER_DEVICE void carry_piece(const SmallFlow& flow, const Piece& piece, uint32_t turn, int block,
                               const uint32_t* stop) {
  const uint32_t number = turn % SmallFlow::kPlaces;
  if (piece.marked) {
    auto* const place =
        reinterpret_cast<ulonglong2*>(flow.marked_places + number * 2 * SmallFlow::kMarkedBytes);
    for (int64_t i = block * kThreads + threadIdx.x; i * 8 < piece.bytes; i += kSmallBlocks * kThreads)
      if (kTakes)
        store_eight(piece.data + i * 8, load_marked(place + i, turn + 1, stop), piece.bytes - i * 8);
      else
        store_marked(place + i, load_eight(piece.data + i * 8, piece.bytes - i * 8), turn + 1);
    return;
  }
  constexpr int64_t kLine = 128;
  const int64_t each = (piece.bytes + kSmallBlocks * kLine - 1) / (kSmallBlocks * kLine) * kLine,
                begin = min(piece.bytes, block * each);
  char *const data = piece.data + begin, *const place = flow.places + number * SmallFlow::kPieceBytes + begin;
  copy_bytes(kTakes ? data : place, kTakes ? place : data, min(piece.bytes - begin, each));
}

/// All of one direction, in rounds of a few pieces of each flow. A thread for each flow looks after its
/// counters, all threads copy.
template <bool kTakes>
TEMPER_DEVICE void carry(const SmallFlow* flows, int count, int block, const uint32_t* stop) {
  __shared__ uint32_t turns[kMostFlows];
  const int thread = static_cast<int>(threadIdx.x);
  const bool looks = thread < count;
  const SmallFlow& mine = flows[looks ? thread : 0];
  const int pieces = looks ? pieces_of(mine) : 0;
  uint32_t turn = looks ? mine.turn[block] : 0;
  int most = 0;
  for (int f = 0; f < count; ++f) most = max(most, pieces_of(flows[f]));
  for (int done = 0; done < most; done += kOfRound) {
    const int now = min(max(pieces - done, 0), kOfRound);
    int plain = 0;  // of them, up to the last one without marks
    for (int i = 0; i < now; ++i)
      if (!piece_of(mine, done + i).marked) plain = i + 1;
    if (looks) turns[thread] = turn;
    if (kTakes ? plain > 0 : now > 0)
      wait_for(mine.ours + block, kTakes ? turn + plain : turn + now - SmallFlow::kPlaces, stop);
    __syncthreads();
    for (int f = 0; f < count; ++f)
      for (int piece = done, end = min(pieces_of(flows[f]), done + kOfRound); piece < end; ++piece)
        carry_piece<kTakes>(flows[f], piece_of(flows[f], piece), turns[f] + (piece - done), block, stop);
    __syncthreads();
    turn += now;
    if (now > 0 && (kTakes || plain > 0)) store_release(mine.theirs + block, turn);
    if (now > 0 && !kTakes && plain == 0) store_relaxed(mine.theirs + block, turn);
  }
  if (looks) mine.turn[block] = turn;
}

/// Half of the blocks send, half take: neither direction waits for the other.
__global__ void __launch_bounds__(kThreads) exchange_kernel(const __grid_constant__ Flows flows) {
  wait_for_previous_kernel();
  const int block = static_cast<int>(blockIdx.x);
  if (block < kSmallBlocks)
    carry<false>(flows.out, flows.num_out, block, flows.stop);
  else
    carry<true>(flows.in, flows.num_in, block - kSmallBlocks, flows.stop);
}

}  // namespace

void exchange_small(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                    const uint32_t* stop) {
  Flows flows{{}, {}, static_cast<int>(out.size()), static_cast<int>(in.size()), stop};
  std::copy(out.begin(), out.end(), flows.out);
  std::copy(in.begin(), in.end(), flows.in);
  launch(lane, exchange_kernel, 2 * kSmallBlocks, kThreads, 0, flows);
}

}  // namespace temper::cuda
