// The gated delta rule for any heads and rows: one block per sequence, value head and 32 columns, chunk by
// chunk, or what there is of a chunk. It defines the bits of the others. What rows of other sequences, or
// nothing, would fill is zero in shared memory.

#include "kernels/cuda/device/delta.cuh"
#include "kernels/cuda/hybrid/delta_sequence.cuh"

namespace temper::cuda {
namespace {

namespace dr = delta;
namespace cn = canonical;
using bf = __nv_bfloat16;
using dr::kBlock;
using dr::kChunk;

constexpr int kColumns = 32, kThreads = 256, kTiles = kColumns / 8;
constexpr int kRowPitch = kChunk + 8;  // elements of shared memory from one row of 64 to the next

/// Decays since the chunk began, by one thread: a chain.
template <class S>
TEMPER_DEVICE void load_decays(const DeltaHead<S>& h, const DeltaPiece& p, float* decays, float* beta) {
  for (int t = 0; t < kChunk; ++t) {
    if (t < p.begin) {
      decays[t] = h.tail_decay(t);
      continue;
    }
    const bool exists = t < p.end;
    const float g = exists ? h.c.g[h.gate(p.r + t)] : 0.f;
    decays[t] = !exists ? 0.f : t == 0 ? g : dr::next_decay(decays[t - 1], g);
    beta[t] = exists ? h.c.beta[h.gate(p.r + t)] : 0.f;
    if (exists && !h.c.paged) h.c.decays[h.gate(p.r + t)] = decays[t];
  }
}

// ---- bf16

/// Shared memory of a block for keys of `depth` elements, a multiple of 16.
struct Memory {
  bf *keys, *queries;       // [64][depth + 8]
  bf* read;                 // [columns][depth + 8]: the high half of the state
  float* state;             // [depth][columns + 1]
  bf *writes, *remembered;  // [columns][kRowPitch]
  bf *minus_a, *p;          // [64][kRowPitch]
  float* a;                 // [64][kBlock]: those of the row's own block
  float* x;                 // [kBlock][columns + 1]
  float *decays, *beta;     // [64]
  int pitch;                // depth + 8

  TEMPER_DEVICE Memory(uint8_t* at, int depth) : pitch(depth + 8) {
    const auto take = [&](auto*& p, int count) {
      p = reinterpret_cast<std::remove_reference_t<decltype(p)>>(at);
      at += (count * static_cast<int>(sizeof(*p)) + 15) / 16 * 16;
    };
    take(keys, kChunk * pitch), take(queries, kChunk * pitch), take(read, kColumns * pitch);
    take(state, depth * (kColumns + 1));
    take(writes, kColumns * kRowPitch), take(remembered, kColumns * kRowPitch);
    take(minus_a, kChunk * kRowPitch), take(p, kChunk * kRowPitch);
    take(a, kChunk * kBlock), take(x, kBlock * (kColumns + 1));
    take(decays, kChunk), take(beta, kChunk);
  }
};
int memory_bytes(int depth) {
  return 2 * (2 * kChunk + kColumns) * (depth + 8) + 4 * depth * (kColumns + 1) +
         2 * 2 * (kColumns + kChunk) * kRowPitch + 4 * (kChunk + 1) * kBlock + 4 * kBlock * kColumns +
         2 * 4 * kChunk + 12 * 16;
}

struct PlainRule {
  const DeltaHead<bf>& h;
  Memory m;
  int depth, column0;  // of the state
  int warp, lane;

  TEMPER_DEVICE bool is_column(int n) const { return column0 + n < h.value_dim; }

  TEMPER_DEVICE void load_rows(const DeltaPiece& p) const {
    const bf zero = __float2bfloat16_rn(0.f);
    for (int at = threadIdx.x; at < kChunk * depth; at += kThreads) {
      const int t = at / depth, i = at % depth;
      const bool is_new = t >= p.begin && t < p.end, in = i < h.key_dim;
      m.keys[t * m.pitch + i] = in && t < p.begin ? h.tail_key(t)[i] : in && is_new ? h.k(p.r + t)[i] : zero;
      m.queries[t * m.pitch + i] = in && is_new ? h.q(p.r + t)[i] : zero;
    }
    for (int at = threadIdx.x; at < kChunk * kColumns; at += kThreads) {
      const int t = at / kColumns, n = at % kColumns;
      m.writes[n * kRowPitch + t] = is_column(n) && t < p.begin ? h.tail_write(t)[column0 + n] : zero;
    }
    if (threadIdx.x == 0) load_decays(h, p, m.decays, m.beta);
  }

  /// a and p of the new rows with all rows up to their own.
  TEMPER_DEVICE void factors(const DeltaPiece& p) const {
    for (int tile = warp; tile < kChunk / kBlock * (kChunk / 8); tile += kThreads / 32) {
      const int t0 = tile / (kChunk / 8) * kBlock, j0 = tile % (kChunk / 8) * 8;
      if (t0 + kBlock <= p.begin || t0 >= p.end || j0 >= t0 + kBlock) continue;
      float kk[4] = {}, qk[4] = {};
      const auto key = [&](int k, int n) { return dr::pair_at(m.keys + (j0 + n) * m.pitch + k); };
      const auto left = [&](const bf* rows) {
        return [=, this](int row, int k) { return dr::pair_at(rows + (t0 + row) * m.pitch + k); };
      };
      dr::chain(kk, depth / dr::kStep, left(m.keys), key);
      dr::chain(qk, depth / dr::kStep, left(m.queries), key);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = t0 + dr::chain_row(i), j = j0 + dr::chain_column(i);
        const bool is_new = t >= p.begin && t < p.end;
        const float since = is_new && j <= t ? dr::since(m.decays[t], m.decays[j]) : 0.f;
        const float a = is_new && j < t ? dr::factor(since, kk[i]) : 0.f;
        const float p = is_new && j <= t ? dr::factor(since, qk[i]) : 0.f;
        m.minus_a[t * kRowPitch + j] = cn::store<bf>(-a);
        m.p[t * kRowPitch + j] = cn::store<bf>(p);
        if (j >= t0) m.a[t * kBlock + j - t0] = a;
      }
    }
  }

  /// Rows of a block: their writes, then their outputs.
  TEMPER_DEVICE void rows(const DeltaPiece& p, int block, bool has_state) const {
    const int t0 = block * kBlock, n0 = warp * 8;
    float x[4] = {}, y[4] = {};
    const auto row_of = [&](const bf* rows, int pitch) {
      return [=](int row, int k) { return dr::pair_at(rows + (t0 + row) * pitch + k); };
    };
    const auto write = [&](int k, int n) { return dr::pair_at(m.writes + (n0 + n) * kRowPitch + k); };
    if (warp < kTiles) {
      if (has_state) {
        const auto read = [&](int k, int n) { return dr::pair_at(m.read + (n0 + n) * m.pitch + k); };
        dr::chain(x, depth / dr::kStep, row_of(m.keys, m.pitch), read);
        dr::chain(y, depth / dr::kStep, row_of(m.queries, m.pitch), read);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = t0 + dr::chain_row(i), n = n0 + dr::chain_column(i);
        const bool is_new = t >= p.begin && t < p.end;
        const float v = is_new && is_column(n) ? cn::load(h.v(p.r + t)[column0 + n]) : 0.f;
        const float gamma = is_new ? dr::exponential(m.decays[t]) : 0.f;
        x[i] = has_state ? dr::begin_write(gamma, x[i], v) : v;
        y[i] = has_state ? dr::begin_output(gamma, y[i]) : 0.f;
      }
      dr::chain(x, block, row_of(m.minus_a, kRowPitch), write);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        m.x[dr::chain_row(i) * (kColumns + 1) + n0 + dr::chain_column(i)] = dr::without_sign_of_zero(x[i]);
    }
    __syncthreads();
    if (threadIdx.x < kColumns) substitute(p, t0, threadIdx.x);
    __syncthreads();
    if (warp >= kTiles) return;
    dr::chain(y, block + 1, row_of(m.p, kRowPitch), write);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = t0 + dr::chain_row(i), n = n0 + dr::chain_column(i);
      if (t >= p.begin && t < p.end && is_column(n))
        h.o(p.r + t)[column0 + n] = cn::store<bf>(dr::without_sign_of_zero(y[i]));
    }
  }

  /// Writes of a column, row after row.
  TEMPER_DEVICE void substitute(const DeltaPiece& p, int t0, int n) const {
    bf* const writes = m.writes + n * kRowPitch;
    for (int t = max(t0, p.begin); t < min(t0 + kBlock, p.end); ++t) {
      float x = m.x[(t - t0) * (kColumns + 1) + n];
      for (int j = t0; j < t; ++j) x = dr::take_off(m.a[t * kBlock + j - t0], cn::load(writes[j]), x);
      writes[t] = dr::write<bf>(m.beta[t], x);
      if (is_column(n)) h.kept_write(p.r + t, t)[column0 + n] = writes[t];
    }
  }

  /// The state after a full chunk.
  TEMPER_DEVICE void next_state(bool has_state) const {
    const float last = m.decays[kChunk - 1], gamma = dr::exponential(last);
    for (int at = threadIdx.x; at < kColumns * kChunk; at += kThreads) {
      const int n = at / kChunk, j = at % kChunk;
      m.remembered[n * kRowPitch + j] =
          dr::remembered(dr::since(last, m.decays[j]), m.writes[n * kRowPitch + j]);
    }
    __syncthreads();
    for (int tile = warp; tile < depth / 16 * kTiles; tile += kThreads / 32) {
      const int i0 = tile / kTiles * 16, n0 = tile % kTiles * 8;
      float s[4];
      const auto at = [&](int i) -> float& {
        return m.state[(i0 + dr::chain_row(i)) * (kColumns + 1) + n0 + dr::chain_column(i)];
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) s[i] = has_state ? __fmul_rn(gamma, at(i)) : 0.f;
      dr::chain(
          s, kChunk / dr::kStep,
          [&](int i, int j) {
            const bf* const key = m.keys + j * m.pitch + i0 + i;
            return dr::both(key[0], key[m.pitch]);
          },
          [&](int j, int n) { return dr::pair_at(m.remembered + (n0 + n) * kRowPitch + j); });
#pragma unroll
      for (int i = 0; i < 4; ++i) at(i) = s[i];
    }
    __syncthreads();
    read_state();
  }
  TEMPER_DEVICE void read_state() const {
    for (int at = threadIdx.x; at < depth * kColumns; at += kThreads) {
      const int i = at / kColumns, n = at % kColumns;
      m.read[n * m.pitch + i] = __ushort_as_bfloat16(dr::high_half(m.state[i * (kColumns + 1) + n]));
    }
    __syncthreads();
  }

  TEMPER_DEVICE void load_state(float* slot) const {
    const uint16_t *const high = h.high_plane(slot), *const low = h.low_plane(slot);
    for (int at = threadIdx.x; at < depth * kColumns; at += kThreads) {
      const int i = at / kColumns, n = at % kColumns;
      const int place = dr::state_place(i, column0 + n, h.key_dim, h.value_dim);
      m.state[i * (kColumns + 1) + n] =
          i < h.key_dim && is_column(n) ? dr::joined(high[place], low[place]) : 0.f;
    }
    __syncthreads();
    read_state();
  }
  TEMPER_DEVICE void store_state(float* slot) const {
    uint16_t *const high = h.high_plane(slot), *const low = h.low_plane(slot);
    for (int at = threadIdx.x; at < h.key_dim * kColumns; at += kThreads) {
      const int i = at / kColumns, n = at % kColumns;
      if (!is_column(n)) continue;
      const int place = dr::state_place(i, column0 + n, h.key_dim, h.value_dim);
      const float x = m.state[i * (kColumns + 1) + n];
      high[place] = dr::high_half(x), low[place] = dr::low_half(x);
    }
  }

  TEMPER_DEVICE void run(int sequence) const {
    bool has_state = h.has_state(), moved = false;
    if (has_state) load_state(h.slot(h.c.pages.from, sequence));
    for (int done = 0; done < h.rows;) {
      const DeltaPiece p = next_piece(h.first, h.rows, done);
      load_rows(p);
      __syncthreads();
      factors(p);
      __syncthreads();
      for (int block = p.begin / kBlock; block * kBlock < p.end; ++block) rows(p, block, has_state);
      __syncthreads();
      if (p.end == kChunk) {
        next_state(has_state);
        has_state = moved = true;
      }
      done += p.end - p.begin;
    }
    if (moved && h.c.paged) store_state(h.slot(h.c.pages.to, sequence));
  }
};

__global__ void __launch_bounds__(kThreads)
    plain_bf16_kernel(const __grid_constant__ DeltaCall c, bool skip_single_rows) {
  begin_kernel();
  extern __shared__ __align__(16) uint8_t memory[];
  const int sequence = static_cast<int>(blockIdx.x);
  const DeltaHead<bf> h(c, sequence, static_cast<int>(blockIdx.y));
  if (h.rows == 0 || (skip_single_rows && h.rows == 1)) return;
  const int depth = dr::round_up(h.key_dim, dr::kStep);
  PlainRule{h,
            Memory(memory, depth),
            depth,
            static_cast<int>(blockIdx.z) * kColumns,
            static_cast<int>(threadIdx.x / 32),
            static_cast<int>(threadIdx.x % 32)}
      .run(sequence);
}

// ---- fp32: row by row, one chain of fused multiply-adds where bf16 has products of 16

struct ScalarRule {
  const DeltaHead<float>& h;
  float *keys, *q, *state, *writes, *a, *p, *decays, *beta;
  int column0;

  TEMPER_DEVICE bool is_column(int n) const { return column0 + n < h.value_dim; }
  TEMPER_DEVICE float& key(int t, int i) const { return keys[t * (h.key_dim + 1) + i]; }
  TEMPER_DEVICE float& at(int i, int n) const { return state[i * (kColumns + 1) + n]; }

  TEMPER_DEVICE void load_tail(const DeltaPiece& p) const {
    for (int x = threadIdx.x; x < p.begin * h.key_dim; x += kThreads)
      key(x / h.key_dim, x % h.key_dim) = h.tail_key(x / h.key_dim)[x % h.key_dim];
    for (int x = threadIdx.x; x < p.begin * kColumns; x += kThreads)
      writes[x] = is_column(x % kColumns) ? h.tail_write(x / kColumns)[column0 + x % kColumns] : 0.f;
    if (threadIdx.x == 0) load_decays(h, p, decays, beta);
  }
  TEMPER_DEVICE void factors(int t) const {
    const int j = threadIdx.x % kChunk;
    if (threadIdx.x >= 2 * kChunk || j > t) return;
    const bool of_query = threadIdx.x >= kChunk;
    float sum = 0.f;
    for (int i = 0; i < h.key_dim; ++i) sum = __fmaf_rn(of_query ? q[i] : key(t, i), key(j, i), sum);
    (of_query ? p : a)[j] = dr::factor(dr::since(decays[t], decays[j]), sum);
  }
  TEMPER_DEVICE void column(int r, int t, int n, bool has_state) const {
    float x = h.v(r)[column0 + n], y = 0.f;
    if (has_state) {
      float k_sum = 0.f, q_sum = 0.f;
      for (int i = 0; i < h.key_dim; ++i) {
        k_sum = __fmaf_rn(key(t, i), at(i, n), k_sum);
        q_sum = __fmaf_rn(q[i], at(i, n), q_sum);
      }
      const float gamma = dr::exponential(decays[t]);
      x = dr::begin_write(gamma, k_sum, x), y = dr::begin_output(gamma, q_sum);
    }
    for (int j = 0; j < t; ++j) x = dr::take_off(a[j], writes[j * kColumns + n], x);
    const float u = dr::write<float>(beta[t], x);
    writes[t * kColumns + n] = u;
    for (int j = 0; j <= t; ++j) y = __fmaf_rn(p[j], writes[j * kColumns + n], y);
    h.kept_write(r, t)[column0 + n] = u;
    h.o(r)[column0 + n] = dr::without_sign_of_zero(y);
  }
  TEMPER_DEVICE void next_state(bool has_state) const {
    const float last = decays[kChunk - 1], gamma = dr::exponential(last);
    for (int x = threadIdx.x; x < h.key_dim * kColumns; x += kThreads) {
      const int i = x / kColumns, n = x % kColumns;
      if (!is_column(n)) continue;
      float s = has_state ? __fmul_rn(gamma, at(i, n)) : 0.f;
      for (int j = 0; j < kChunk; ++j)
        s = __fmaf_rn(key(j, i), dr::remembered(dr::since(last, decays[j]), writes[j * kColumns + n]), s);
      at(i, n) = s;
    }
  }
  template <class F>
  TEMPER_DEVICE void each_element(const F& f) const {
    for (int x = threadIdx.x; x < h.key_dim * kColumns; x += kThreads)
      if (is_column(x % kColumns))
        f(at(x / kColumns, x % kColumns),
          int64_t{h.head} * h.state_size() + x / kColumns * h.value_dim + column0 + x % kColumns);
  }

  TEMPER_DEVICE void run(int sequence) const {
    bool has_state = h.has_state(), moved = false;
    if (has_state) {
      const float* const from = h.slot(h.c.pages.from, sequence);
      each_element([&](float& x, int64_t place) { x = from[place]; });
    }
    for (int done = 0; done < h.rows;) {
      const DeltaPiece p = next_piece(h.first, h.rows, done);
      load_tail(p);
      for (int t = p.begin; t < p.end; ++t) {
        const int r = p.r + t;
        __syncthreads();
        for (int i = threadIdx.x; i < h.key_dim; i += kThreads) key(t, i) = h.k(r)[i], q[i] = h.q(r)[i];
        __syncthreads();
        factors(t);
        __syncthreads();
        if (threadIdx.x < kColumns && is_column(threadIdx.x)) column(r, t, threadIdx.x, has_state);
      }
      __syncthreads();
      if (p.end == kChunk) {
        next_state(has_state);
        has_state = moved = true;
        __syncthreads();
      }
      done += p.end - p.begin;
    }
    if (!moved || !h.c.paged) return;
    float* const to = h.slot(h.c.pages.to, sequence);
    each_element([&](float& x, int64_t place) { to[place] = x; });
  }
};
int scalar_bytes(int depth) {
  return 4 * (kChunk * (depth + 1) + depth + depth * (kColumns + 1) + kChunk * kColumns + 4 * kChunk);
}

__global__ void __launch_bounds__(kThreads)
    plain_fp32_kernel(const __grid_constant__ DeltaCall c, bool skip_single_rows) {
  begin_kernel();
  extern __shared__ __align__(16) float floats[];
  const int sequence = static_cast<int>(blockIdx.x);
  const DeltaHead<float> h(c, sequence, static_cast<int>(blockIdx.y));
  if (h.rows == 0 || (skip_single_rows && h.rows == 1)) return;
  float *const q = floats + kChunk * (h.key_dim + 1), *const state = q + h.key_dim,
               *const writes = state + h.key_dim * (kColumns + 1), *const a = writes + kChunk * kColumns;
  ScalarRule{h,
             floats,
             q,
             state,
             writes,
             a,
             a + kChunk,
             a + 2 * kChunk,
             a + 3 * kChunk,
             static_cast<int>(blockIdx.z) * kColumns}
      .run(sequence);
}

// ---- tails: keys and decays, after everybody has read them

/// One block per sequence: its rows of the last chunk.
template <class S>
__global__ void __launch_bounds__(kThreads)
    append_kernel(const __grid_constant__ DeltaCall c, bool skip_single_rows) {
  begin_kernel();
  const int sequence = static_cast<int>(blockIdx.x);
  const DeltaHead<S> h(c, sequence, 0);
  if (h.rows == 0 || (skip_single_rows && h.rows == 1)) return;
  const int length = h.first + h.rows, chunk = (length - 1) / kChunk * kChunk, begin = max(h.first, chunk);
  const int width = static_cast<int>(c.heads.key_width);
  for (int at = threadIdx.x; at < (length - begin) * width; at += kThreads) {
    const int position = begin + at / width;
    h.tail_key(position - chunk)[at % width] = h.k(position - h.first)[at % width];
  }
  for (int head = threadIdx.x; head < c.heads.value_heads; head += kThreads) {
    const DeltaHead<S> own(c, sequence, head);
    float decay = begin > chunk ? own.tail_decay(begin - 1 - chunk) : 0.f;
    for (int position = begin; position < length; ++position) {
      const float g = c.g[own.gate(position - h.first)];
      decay = position == chunk ? g : dr::next_decay(decay, g);
      own.tail_decay(position - chunk) = decay;
    }
  }
}

}  // namespace

void delta_rule_plain(Ctx& ctx, DType type, const DeltaCall& c, bool skip_single_rows) {
  const int key_dim = c.heads.key_dim;
  CHECK(key_dim <= 256 && c.heads.value_dim <= 256, "a gated delta net with heads of {} and {}", key_dim,
        c.heads.value_dim);
  const dim3 grid(c.T > 0 ? c.S : 0, static_cast<unsigned>(c.heads.value_heads),
                  blocks_for(c.heads.value_dim, kColumns));
  dispatch_gpu_storage(type, [&](auto s) {
    using S = decltype(s);
    constexpr bool kScalar = sizeof(S) == 4;
    const auto kernel = kScalar ? plain_fp32_kernel : plain_bf16_kernel;
    const int bytes = kScalar ? scalar_bytes(key_dim) : memory_bytes((key_dim + 15) / 16 * 16);
    allow_shared_memory(kernel, bytes);
    launch(ctx.lane, kernel, grid, dim3(kThreads), static_cast<size_t>(bytes), c, skip_single_rows);
  });
  if (c.paged) append_to_tails(ctx, type, c, skip_single_rows);
}

void append_to_tails(Ctx& ctx, DType type, const DeltaCall& c, bool skip_single_rows) {
  dispatch_gpu_storage(type, [&](auto s) {
    launch(ctx.lane, append_kernel<decltype(s)>, dim3(c.T > 0 ? c.S : 0), dim3(kThreads), 0, c,
           skip_single_rows);
  });
}

}  // namespace temper::cuda
