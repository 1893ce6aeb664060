#pragma once
// Shared memory, barriers and work items of the one-pass attention backward (attention_backward_sm90.cu).

#include "kernels/cuda/device/canonical.cuh"
#include "kernels/cuda/device/wgmma.cuh"

namespace temper::cuda::backward {

using bf = __nv_bfloat16;

constexpr int kKeys = 128, kThreads = 512;

/// 128 keys of one sequence.
struct Tile {
  int row, len;  // first packed row of the sequence, its rows
  int block;     // block of keys
  int pad;       // first padded row of the sequence
};
/// The work: item i is a kv head of a tile (see Work). Written on the device.
struct List {
  int num_tiles, heads_at_once;
  int next;  // item that nobody has taken yet
  int unused;
};
struct Arguments {
  bf* dqkv;
  const Tile* tiles;  // longest first; block b of a sequence before its block b + 1
  List* list;
  const float *lse, *delta;  // [q_heads, padded]: -lse * log2(e), rowsum(dout * out)
  float* dq;                 // [q_heads, padded / rows, 8192] in fragment order
  int* flags;                // [q_heads, padded / rows]: blocks of keys whose part is in dq
  int q_heads, kv_heads, group, padded;
  float c, scale;
};

/// Dynamic shared memory starts here when the kernel has no static one (checked at start): addresses and
/// descriptors become constants, which saves the registers that this kernel is short of.
constexpr uint32_t kSharedBase = 1024;

template <uint32_t AT>
struct BarsAt {
  static constexpr int kConsumerWarps = 8, kDqWarps = 4, kSlotReaders = 15;
  static TEMPER_DEVICE uint32_t q_full(int i) { return AT + 8 * i; }  // stages: 2
  static TEMPER_DEVICE uint32_t q_empty(int i) { return AT + 16 + 8 * i; }
  static TEMPER_DEVICE uint32_t ds_full(int i) { return AT + 32 + 8 * i; }  // buffers: 2
  static TEMPER_DEVICE uint32_t ds_empty(int i) { return AT + 48 + 8 * i; }
  static TEMPER_DEVICE uint32_t sum_full(int i) { return AT + 64 + 8 * i; }  // 2 steps x 2 parts
  static TEMPER_DEVICE uint32_t sum_empty(int i) { return AT + 96 + 8 * i; }
  static TEMPER_DEVICE uint32_t turn_full(int i) { return AT + 128 + 8 * i; }  // 2
  static TEMPER_DEVICE uint32_t turn_empty(int i) { return AT + 144 + 8 * i; }
  static TEMPER_DEVICE uint32_t slot_full(int i) { return AT + 160 + 8 * i; }  // 2
  static TEMPER_DEVICE uint32_t slot_empty(int i) { return AT + 176 + 8 * i; }
  static TEMPER_DEVICE uint32_t kv_full(int v) { return AT + 192 + 8 * v; }  // K, V
  static TEMPER_DEVICE uint32_t kv_empty(int v) { return AT + 208 + 8 * v; }
  static TEMPER_DEVICE uint32_t kv_tail(int v) { return AT + 224 + 8 * v; }
  static TEMPER_DEVICE uint32_t tail(int v) { return AT + 240 + 8 * v; }     // Q, dO
  static TEMPER_DEVICE uint32_t do_full(int i) { return AT + 264 + 8 * i; }  // stages: 2
  static TEMPER_DEVICE uint32_t do_empty(int i) { return AT + 280 + 8 * i; }
  static TEMPER_DEVICE uint32_t slot(int i) { return AT + 256 + 4 * i; }
  static constexpr int kSlots = 256, kBytes = 296;
  static __device__ void init() {
    for (int i = 0; i < 2; i++) {
      mbar_init(q_full(i), 1), mbar_init(q_empty(i), kConsumerWarps);
      mbar_init(do_full(i), 1), mbar_init(do_empty(i), kConsumerWarps), mbar_init(tail(i), 1);
      mbar_init(ds_full(i), kConsumerWarps), mbar_init(ds_empty(i), kDqWarps);
      mbar_init(turn_full(i), 1), mbar_init(turn_empty(i), kDqWarps);
      mbar_init(slot_full(i), 1), mbar_init(slot_empty(i), kSlotReaders);
      mbar_init(kv_full(i), 1), mbar_init(kv_tail(i), 1);
    }
    for (int i = 0; i < 4; i++) mbar_init(sum_full(i), kDqWarps), mbar_init(sum_empty(i), 1);
    mbar_init(kv_empty(0), kConsumerWarps + kDqWarps), mbar_init(kv_empty(1), kConsumerWarps);
    fence_barrier_init();
  }
};

/// Reads the items as the producer hands them out.
template <class B>
struct FeedOf {
  int lane;
  TEMPER_DEVICE int fetch(int n) const {
    mbar_wait(B::slot_full(n & 1), n >> 1 & 1);
    int item = 0;
    if (lane == 0) {
      asm volatile("ld.shared.s32 %0, [%1];" : "=r"(item) : "r"(B::slot(n & 1)) : "memory");
      mbar_arrive(B::slot_empty(n & 1));
    }
    return __shfl_sync(~0u, item, 0);
  }
};

template <int D>
struct Smem {
  static constexpr int kRows = D == 128 ? 64 : 128;  // queries of a step
  static constexpr int kRatio = kKeys / kRows;
  static constexpr int kStages = 2, kDsBuffers = 2;  // of Q and dO; of dS
  static constexpr int kKv = kKeys * D * 2, kQ = kRows * D * 2, kDs = kKeys * kRows * 2, kPart = 16384;
  static constexpr int kK = 0, kV = kKv, kQs = 2 * kKv, kDo = kQs + kStages * kQ, kDsAt = kDo + kStages * kQ,
                       kSums = kDsAt + kDsBuffers * kDs, kStats = kSums + 4 * kPart,
                       kBars = kStats + kStages * kRows * 8, kBytes = kBars + BarsAt<0>::kBytes;
  static_assert(kBytes <= 227 * 1024);
};
template <int D>
using Bars = BarsAt<kSharedBase + Smem<D>::kBars>;
template <int D>
using Feed = FeedOf<Bars<D>>;

/// One item of work, decoded.
template <int RATIO>
struct Work {
  Tile tile;
  int kv_head, group, last, first;  // query blocks last .. first (descending)
  TEMPER_DEVICE Work(const Arguments& a, int item) {
    const int heads = a.list->heads_at_once, per = a.list->num_tiles * heads, rest = item % per;
    const int4 x = *reinterpret_cast<const int4*>(a.tiles + rest / heads);
    tile = {x.x, x.y, x.z, x.w};
    kv_head = item / per * heads + rest % heads;
    group = a.group;
    last = (tile.len - 1) / (kKeys / RATIO);
    first = tile.block * RATIO;
  }
};

/// The same value, of which the compiler knows nothing: what depends on it is not hoisted out of a loop and
/// spilled.
TEMPER_DEVICE int anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

struct Ring {
  uint32_t i = 0, phase = 0;
  template <int N>
  TEMPER_DEVICE void next() {
    if (++i == N) i = 0, phase ^= 1;
  }
};

}  // namespace temper::cuda::backward
