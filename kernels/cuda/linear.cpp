// Which kernel computes a product, and cuBLASLt restricted to the one-chain class. Every algorithm is tested
// on random data against the plain chain the first time its shape comes up, and refused if a single bit
// differs: another chip or another library may sum in another order.

#include "kernels/cuda/linear.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "kernels/cuda/libraries.h"

namespace temper::cuda {
namespace {

// ---- self-test

/// `run` on random rows against `reference` on the first 64 of them; true if all bits of `columns` agree.
template <class Run, class Reference>
bool same_bits(Ctx& ctx, Product p, int64_t M, int64_t columns, Run&& run, Reference&& reference) {
  constexpr int64_t kComparedRows = 64;
  ArenaScope scope(ctx.scratch);
  p.M = M;
  const int64_t rows = std::min(M, kComparedRows), bytes = dtype_size(p.out);
  void* x = ctx.scratch.allocate(M * p.K * 2);
  p.x = x;
  p.y = ctx.scratch.allocate(M * p.pitch * bytes);
  Product plain = p;
  plain.y = ctx.scratch.allocate(rows * p.pitch * bytes);
  plain.M = rows;
  fill_random(ctx.lane, x, M * p.K);
  run(p);
  reference(plain);
  int* count = static_cast<int*>(ctx.scratch.allocate(sizeof(int)));
  device::fill(ctx.lane, count, 0, sizeof(int));
  count_differing(ctx.lane, count, p, plain, rows, columns);
  int differing = 0;
  device::copy_from_device(ctx.lane, &differing, count, sizeof(int));
  return differing == 0;
}

template <class Run>
bool same_bits_as_chain(Ctx& ctx, const Product& p, int64_t M, Run&& run) {
  return same_bits(ctx, p, M, p.N, run, [&](const Product& q) { multiply_chain(ctx.lane, q); });
}

[[noreturn]] void fail_class(const char* kernel, const Product& p, int64_t rows) {
  fail(Exit::environment,
       {.what = fmt::format("{} does not sum in the order that temper's numerics define", kernel),
        .where = fmt::format("product of {} rows, {} outputs, {} features, on {}", rows, p.N, p.K,
                             device::gpu_name()),
        .why = "its bits differ from a chain of tensor-core products over ascending features",
        .fix = "use a GPU (H100, H200) and a cuBLAS (13) that the kernels were written for"});
}

// ---- cuBLASLt

struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  std::string name;  // its attributes
};

/// The objects of one call, destroyed with it.
class LtCall {
 public:
  LtCall(Libraries& libraries, const Product& p) : lt_(libraries.lt()), libraries_(libraries), p_(p) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cudaDataType_t out = p.out == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
    check(lt_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "transpose");
    if (p.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t type = CUDA_R_16BF;
      check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), "epilogue");
      check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias), "bias");
      check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type), "bias type");
    }
    const auto M = static_cast<uint64_t>(p.M), N = static_cast<uint64_t>(p.N), K = static_cast<uint64_t>(p.K);
    check(lt_.layout_create(&w_, CUDA_R_16BF, K, N, p.K), "layout");
    check(lt_.layout_create(&x_, CUDA_R_16BF, K, M, p.K), "layout");
    check(lt_.layout_create(&y_, out, N, M, p.pitch), "layout");
  }
  ~LtCall() {
    (void)lt_.layout_destroy(y_);
    (void)lt_.layout_destroy(x_);
    (void)lt_.layout_destroy(w_);
    (void)lt_.desc_destroy(desc_);
  }
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  void run(const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1.f, zero = 0.f;
    check(lt_.matmul(libraries_.lt_handle(), desc_, &one, p_.w, w_, p_.x, x_, &zero, p_.y, y_, p_.y, y_,
                     &algorithm, libraries_.workspace(), Libraries::kWorkspaceBytes,
                     stream_of(libraries_.lane())),
          "matmul");
  }

  /// Algorithms without split K of the wgmma family (id 66), best first by the library's estimate.
  std::vector<Candidate> candidates() {
    constexpr int kAsked = 64, kFamily = 66;
    cublasLtMatmulPreference_t preference;
    const size_t bytes = Libraries::kWorkspaceBytes;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    check(lt_.preference_create(&preference), "preference");
    check(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
          "bytes");
    check(
        lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes),
        "schemes");
    std::vector<cublasLtMatmulHeuristicResult_t> results(kAsked);
    int found = 0;
    check(lt_.heuristic(libraries_.lt_handle(), desc_, w_, x_, y_, y_, preference, kAsked, results.data(),
                        &found),
          "heuristic");
    check(lt_.preference_destroy(preference), "preference");
    std::vector<Candidate> list;
    for (int i = 0; i < found; ++i) {
      const auto& r = results[static_cast<size_t>(i)];
      if (r.state == CUBLAS_STATUS_SUCCESS && attribute<int>(r.algo, CUBLASLT_ALGO_CONFIG_ID) == kFamily &&
          attribute<int>(r.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) == 1)
        list.push_back({r.algo, name_of(r.algo)});
    }
    return list;
  }

 private:
  void check(cublasStatus_t status, const char* call) const {
    CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt {} of [{}, {}] x [{}, {}]: status {}", call, p_.M, p_.K,
          p_.N, p_.K, static_cast<int>(status));
  }
  std::string name_of(const cublasLtMatmulAlgo_t& a) const {
    return fmt::format("tile {} stages {} swizzle {} custom {} inner {} cluster {}",
                       attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
                       attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                       attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                       attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
                       attribute<uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
                       attribute<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
  }
  template <class T>
  T attribute(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t what) const {
    T value = 0;
    size_t written = 0;
    check(lt_.algo_attribute(&algorithm, what, &value, sizeof value, &written), "attribute");
    return value;
  }

  const CublasLt& lt_;
  Libraries& libraries_;
  const Product& p_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
};

/// Shortest of a few runs on random rows, in milliseconds.
float shortest_run(Ctx& ctx, Product p, const cublasLtMatmulAlgo_t& algorithm) {
  constexpr int kRuns = 4;
  ArenaScope scope(ctx.scratch);
  void* x = ctx.scratch.allocate(p.M * p.K * 2);
  p.x = x;
  p.y = ctx.scratch.allocate(p.M * p.pitch * dtype_size(p.out));
  fill_random(ctx.lane, x, p.M * p.K);
  LtCall call(libraries_of(ctx), p);
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  float shortest = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    CUDA_CHECK(cudaEventRecord(start, stream_of(ctx.lane)));
    call.run(algorithm);
    CUDA_CHECK(cudaEventRecord(end, stream_of(ctx.lane)));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    if (i > 0) shortest = std::min(shortest, ms);
  }
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));
  return shortest;
}

/// Fastest first.
void sort_by_time(Ctx& ctx, const Product& p, std::vector<Candidate>& list) {
  constexpr size_t kMostTimed = 24;  // the library lists its best guesses first
  if (list.size() > kMostTimed) list.resize(kMostTimed);
  std::vector<std::pair<float, Candidate>> timed;
  for (const Candidate& c : list) timed.emplace_back(shortest_run(ctx, p, c.algorithm), c);
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < list.size(); ++i) list[i] = timed[i].second;
}

/// The algorithm for up to bit_ceil(M) rows, settled at the first call: what an earlier run found fastest,
/// else the fastest of a sweep; in both cases only after its self-test. The clock chooses among equal bits.
const cublasLtMatmulAlgo_t& algorithm_for(Ctx& ctx, const Product& p) {
  Libraries& libraries = libraries_of(ctx);
  const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(p.M)));
  const GemmKey key{rows, p.N, p.K, p.pitch, p.out, p.bias != nullptr};
  if (const auto at = libraries.algorithms.find(key); at != libraries.algorithms.end()) return at->second;
  const auto passes = [&](const Candidate& c) {
    return same_bits_as_chain(ctx, p, rows, [&](const Product& q) { LtCall(libraries, q).run(c.algorithm); });
  };
  Product bucket = p;
  bucket.M = rows;
  std::vector<Candidate> list = LtCall(libraries, bucket).candidates();
  const std::optional<std::string> known = libraries.fastest().find(key.name());
  for (const Candidate& c : list)
    if (c.name == known && passes(c)) return libraries.algorithms.emplace(key, c.algorithm).first->second;
  sort_by_time(ctx, bucket, list);
  for (const Candidate& c : list) {
    if (!passes(c)) continue;
    libraries.fastest().put(key.name(), c.name);
    return libraries.algorithms.emplace(key, c.algorithm).first->second;
  }
  fail_class(list.empty() ? "no algorithm of cuBLASLt" : "cuBLASLt", p, rows);
}

// ---- skinny kernels, each tested once per weight shape

constexpr int64_t kTestedRows[]{1, 16, 64};

void require_skinny_class(Ctx& ctx, const Product& p) {
  if (!libraries_of(ctx).skinny_shapes.insert({p.N, p.K, false}).second) return;
  for (const int64_t rows : kTestedRows)
    if (!same_bits_as_chain(ctx, p, rows, [&](const Product& q) { multiply_skinny(libraries_of(ctx), q); }))
      fail_class("the decode kernel", p, rows);
}

void require_gated_class(Ctx& ctx, const Product& p) {
  if (!libraries_of(ctx).skinny_shapes.insert({p.N, p.K, true}).second) return;
  const auto two_steps = [&](Product q) {
    const Tensor a = make_tensor(q.y, q.out, {q.M, q.pitch}), gate_up = ctx.scratch.make({q.M, q.N}, q.out);
    q.y = gate_up.raw();
    q.pitch = q.N;
    multiply_chain(ctx.lane, q);
    swiglu_forward(ctx, a, gate_up);
  };
  for (const int64_t rows : kTestedRows)
    if (!same_bits(
            ctx, p, rows, p.pitch, [&](const Product& q) { multiply_skinny_gated(libraries_of(ctx), q); },
            two_steps))
      fail_class("the decode kernel with SwiGLU", p, rows);
}

}  // namespace

void multiply(Ctx& ctx, const Product& p) {
  if (p.M == 0 || p.N == 0) return;
  if (p.in == DType::f32) return multiply_fp32(ctx.lane, p);
  if (!is_aligned(p)) return multiply_chain(ctx.lane, p);
  if (p.M <= kSkinnyRows) {
    require_skinny_class(ctx, p);
    return multiply_skinny(libraries_of(ctx), p);
  }
  Product whole = p, rest = p;  // the wgmma family takes outputs in eights
  whole.N = p.N / 8 * 8;
  if (whole.N > 0) LtCall(libraries_of(ctx), whole).run(algorithm_for(ctx, whole));
  if (whole.N == p.N) return;
  rest.N = p.N - whole.N;
  rest.y = static_cast<char*>(p.y) + whole.N * dtype_size(p.out);
  rest.w = static_cast<const char*>(p.w) + whole.N * p.K * dtype_size(p.in);
  CHECK(p.bias == nullptr, "{} outputs with a bias", p.N);
  multiply_chain(ctx.lane, rest);
}

void linear_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor bias) {
  CHECK(y.dtype == x.dtype || y.dtype == DType::f32, "y is {}, x is {}", dtype_name(y.dtype),
        dtype_name(x.dtype));
  multiply(ctx,
           {y.raw(), x.data, w.data, bias.data, x.dim(0), w.dim(0), x.dim(1), w.dim(0), x.dtype, y.dtype});
}

void linear_swiglu_forward(Ctx& ctx, Tensor a, CTensor x, CTensor w, CTensor bias) {
  const Product p{a.raw(),  x.data,   w.data,   bias.data, x.dim(0),
                  w.dim(0), x.dim(1), a.dim(1), x.dtype,   a.dtype};
  if (p.M > 0 && p.M <= kSkinnyRows && is_aligned(p)) {
    require_gated_class(ctx, p);
    return multiply_skinny_gated(libraries_of(ctx), p);
  }
  ArenaScope scope(ctx.scratch);
  const Tensor gate_up = ctx.scratch.make({p.M, p.N}, x.dtype);
  linear_forward(ctx, gate_up, x, w, bias);
  swiglu_forward(ctx, a, gate_up);
}

}  // namespace temper::cuda
