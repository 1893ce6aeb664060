// Small parcels between GPUs (src/ops/peers/peer_exchange.h): bound by the link, and when they are very small by
// what a write takes to the other side and back.

#include <algorithm>

#include "kernels/cuda/rank_sum.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLooks = 1024;  // at a counter, between two at the word that stops

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

/// Bytes of a piece that a block carries in a row; the next ones are those of the next block. The same place
/// in memory has the same block in every piece, whatever its size: blocks of a sender wait for those of the
/// receiver that have the same number, and for no other.
constexpr int64_t kRunBytes = kThreads * int64_t{sizeof(uint4)};
TEMPER_DEVICE bool is_of(int block, int64_t at) { return at / kRunBytes % kSmallBlocks == block; }

/// What is written may be what is read next, for all that the compiler knows: a thread reads several words
/// before it writes the first one, so as not to wait for memory once for each.
template <class Word>
TEMPER_DEVICE void copy_words(char* to, const char* from, int64_t bytes, int block) {
  constexpr int kAtOnce = 8;
  constexpr int64_t kItem = sizeof(Word), kRun = kRunBytes / kItem, kApart = kRun * kSmallBlocks;
  const int64_t words = bytes / kItem;
  auto* const out = reinterpret_cast<Word*>(to);
  const auto* const in = reinterpret_cast<const Word*>(from);
  const auto place_of = [&](int64_t i) { return i / kRun * kApart + block * kRun + i % kRun; };
  for (int64_t i = threadIdx.x; place_of(i) < words; i += kAtOnce * kThreads) {
    Word word[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      if (const int64_t at = place_of(i + n * kThreads); at < words) word[n] = __ldcg(in + at);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n)
      if (const int64_t at = place_of(i + n * kThreads); at < words) out[at] = word[n];
  }
  const int64_t rest = words * kItem + threadIdx.x;
  if (rest < bytes && is_of(block, rest)) to[rest] = __ldcg(from + rest);
}
/// A block's share, by all of its threads, past the first-level cache: others have written.
TEMPER_DEVICE void copy_share(char* to, const char* from, int64_t bytes, int block) {
  const auto both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (both % sizeof(uint4) == 0)
    copy_words<uint4>(to, from, bytes, block);
  else if (both % sizeof(uint32_t) == 0)
    copy_words<uint32_t>(to, from, bytes, block);
  else
    copy_words<char>(to, from, bytes, block);
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
/// Eight bytes of data that may end before eight bytes do, and lie anywhere.
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
  char* const place = flow.places + number * SmallFlow::kPieceBytes;
  copy_share(kTakes ? piece.data : place, kTakes ? place : piece.data, piece.bytes, block);
}

/// All of one direction, a piece of each flow after the other. A thread for each flow looks after its
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
  for (int number = 0; number < most; ++number) {
    const bool has = number < pieces, marked = has && piece_of(mine, number).marked;
    if (looks) turns[thread] = turn;
    if (has && !(kTakes && marked))
      wait_for(mine.ours + block, kTakes ? turn + 1 : turn + 1 - SmallFlow::kPlaces, stop);
    __syncthreads();
    for (int f = 0; f < count; ++f)
      if (number < pieces_of(flows[f]))
        carry_piece<kTakes>(flows[f], piece_of(flows[f], number), turns[f], block, stop);
    __syncthreads();
    if (!has) continue;
    ++turn;
    if (kTakes || !marked)
      store_release(mine.theirs + block, turn);
    else
      store_relaxed(mine.theirs + block, turn);
  }
  if (looks) mine.turn[block] = turn;
}

/// The flow of another rank, by their order, in which this rank has none.
TEMPER_DEVICE int flow_of(int r, int rank) { return r > rank ? r - 1 : r; }

/// A block's share of the sum of pieces with marks, of which `turns` tell the places: eight bytes of each
/// rank at once.
template <class S, class P>
TEMPER_DEVICE void add_marked(const Flows& flows, const uint32_t* turns, const RankAdder<S, P>& sum,
                              int block) {
  constexpr int N = 8 / sizeof(P);
  const auto* const own = reinterpret_cast<const char*>(sum.own);
  for (int64_t i = block * kThreads + threadIdx.x; i * 8 < sum.bytes(); i += kSmallBlocks * kThreads) {
    float total[N], part[N];
    for (int r = 0; r < sum.ranks; ++r) {
      RawGroup<P, N> raw;
      if (r == sum.rank) {
        *reinterpret_cast<uint64_t*>(raw.at) = load_eight(own + i * 8, sum.bytes() - i * 8);
      } else {
        const int f = flow_of(r, sum.rank);
        const char* const place =
            flows.in[f].marked_places + turns[f] % SmallFlow::kPlaces * 2 * SmallFlow::kMarkedBytes;
        *reinterpret_cast<uint64_t*>(raw.at) =
            load_marked(reinterpret_cast<const ulonglong2*>(place) + i, turns[f] + 1, flows.stop);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) part[k] = canonical::load(raw.at[k]);
      add_part(total, part, r);
    }
    sum.write(total, i * N, static_cast<int>(min(int64_t{N}, sum.count - i * N)), /*whole=*/false);
  }
}
/// The same without marks, of pieces that have come. Blocks have the bytes that those of copies have: 16 for
/// a thread, in runs of all threads.
template <class S, class P>
TEMPER_DEVICE void add_plain(const Flows& flows, const uint32_t* turns, const RankAdder<S, P>& sum,
                             int block) {
  add_groups<kThreads>(sum, block, kSmallBlocks, [&](int r) {
    const int f = flow_of(r, sum.rank);
    return reinterpret_cast<const P*>(flows.in[f].places +
                                      turns[f] % SmallFlow::kPlaces * SmallFlow::kPieceBytes);
  });
}

/// Flows bring a parcel each of the size of `sum.own`, of which pieces are added where they lie.
template <class S, class P>
TEMPER_DEVICE void take_sum(const Flows& flows, const RankAdder<S, P>& sum, int block) {
  constexpr int64_t kPiece = SmallFlow::kPieceBytes / sizeof(P);
  __shared__ uint32_t turns[kMostFlows];
  const int thread = static_cast<int>(threadIdx.x);
  const bool looks = thread < flows.num_in, marked = sum.bytes() <= SmallFlow::kMarkedBytes;
  const SmallFlow& mine = flows.in[looks ? thread : 0];
  uint32_t turn = looks ? mine.turn[block] : 0;
  for (int64_t at = 0; at < sum.count; at += kPiece) {
    if (looks) turns[thread] = turn;
    if (looks && !marked) wait_for(mine.ours + block, turn + 1, flows.stop);
    __syncthreads();
    const RankAdder<S, P> piece = sum.piece(at, min(kPiece, sum.count - at));
    if (marked)
      add_marked(flows, turns, piece, block);
    else
      add_plain(flows, turns, piece, block);
    __syncthreads();
    ++turn;
    if (looks) store_release(mine.theirs + block, turn);
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

template <class S, class P>
__global__ void __launch_bounds__(kThreads)
    exchange_sum_kernel(const __grid_constant__ Flows flows, const RankAdder<S, P> sum) {
  wait_for_previous_kernel();
  const int block = static_cast<int>(blockIdx.x);
  if (block < kSmallBlocks)
    carry<false>(flows.out, flows.num_out, block, flows.stop);
  else
    take_sum(flows, sum, block - kSmallBlocks);
}

Flows flows_of(std::span<const SmallFlow> out, std::span<const SmallFlow> in, const uint32_t* stop) {
  Flows flows{{}, {}, static_cast<int>(out.size()), static_cast<int>(in.size()), stop};
  std::copy(out.begin(), out.end(), flows.out);
  std::copy(in.begin(), in.end(), flows.in);
  return flows;
}

}  // namespace

void exchange_small(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                    const uint32_t* stop) {
  launch(lane, exchange_kernel, 2 * kSmallBlocks, kThreads, 0, flows_of(out, in, stop));
}

void exchange_small_sum(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                        const RankSum& sum, const uint32_t* stop) {
  dispatch_rank_sum(sum, static_cast<int>(in.size()) + 1,
                    [&]<class S, class P>(const RankAdder<S, P>& adder) {
                      launch(lane, exchange_sum_kernel<S, P>, 2 * kSmallBlocks, kThreads, 0,
                             flows_of(out, in, stop), adder);
                    });
}

}  // namespace temper::cuda
