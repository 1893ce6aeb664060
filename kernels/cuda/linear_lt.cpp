#include "kernels/cuda/linear_lt.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cuda/linear_trial.h"

namespace temper::cuda {

// ---- one call. The library thinks in columns: its A is w, its B is x, its D the transpose of y.

LtCall::LtCall(Libraries& libraries, const Product& p) : lt_(libraries.lt()), libraries_(libraries), p_(p) {
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cudaDataType_t out = p.out == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
  const auto M = static_cast<uint64_t>(p.M), N = static_cast<uint64_t>(p.N), K = static_cast<uint64_t>(p.K);
  check(lt_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
  if (p.kind == ProductKind::forward) {
    check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "transpose");
    check(lt_.layout_create(&w_, CUDA_R_16BF, K, N, p.K), "layout");
  } else {
    check(lt_.layout_create(&w_, CUDA_R_16BF, N, K, p.N), "layout");
  }
  if (p.kind == ProductKind::weight_gradient) {
    check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof transposed), "transpose");
    check(lt_.layout_create(&x_, CUDA_R_16BF, M, K, p.left_pitch()), "layout");
  } else {
    check(lt_.layout_create(&x_, CUDA_R_16BF, K, M, p.left_pitch()), "layout");
  }
  check(lt_.layout_create(&y_, out, N, M, p.pitch), "layout");
  if (p.bias != nullptr) set_bias();
}

void LtCall::set_bias() {
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  const cudaDataType_t type = CUDA_R_16BF;
  check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), "epilogue");
  check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p_.bias, sizeof p_.bias), "bias");
  check(lt_.desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type), "bias type");
}

LtCall::~LtCall() {
  (void)lt_.layout_destroy(y_);
  (void)lt_.layout_destroy(x_);
  (void)lt_.layout_destroy(w_);
  (void)lt_.desc_destroy(desc_);
}

/// With a factor of 0 the library does not read what y held.
void LtCall::run(const cublasLtMatmulAlgo_t& algorithm) const {
  const float held = p_.add ? 1.f : 0.f;
  check(lt_.matmul(libraries_.lt_handle(), desc_, &p_.scale, p_.w, w_, p_.x, x_, &held, p_.y, y_, p_.y, y_,
                   &algorithm, libraries_.workspace(), Libraries::kWorkspaceBytes,
                   stream_of(libraries_.lane())),
        "matmul");
}

std::vector<Candidate> LtCall::all(bool in_parts) const {
  constexpr int kAsked = 64;
  cublasLtMatmulPreference_t preference;
  const size_t bytes = Libraries::kWorkspaceBytes;
  const uint32_t schemes = in_parts ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_NONE;
  check(lt_.preference_create(&preference), "preference");
  check(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
        "bytes");
  check(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes),
        "schemes");
  std::vector<cublasLtMatmulHeuristicResult_t> results(kAsked);
  int found = 0;
  const cublasStatus_t status = lt_.heuristic(libraries_.lt_handle(), desc_, w_, x_, y_, y_, preference,
                                              kAsked, results.data(), &found);
  check(lt_.preference_destroy(preference), "preference");
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "heuristic");
  std::vector<Candidate> list;
  for (int i = 0; i < found; ++i) {
    const auto& r = results[static_cast<size_t>(i)];
    if (r.state == CUBLAS_STATUS_SUCCESS) list.push_back({r.algo, name_of(r.algo)});
  }
  return list;
}

std::vector<Candidate> LtCall::candidates() const {
  constexpr int kFamily = 66;
  std::vector<Candidate> list = all(/*in_parts=*/false);
  std::erase_if(list, [&](const Candidate& c) {
    return attribute<int>(c.algorithm, CUBLASLT_ALGO_CONFIG_ID) != kFamily ||
           attribute<int>(c.algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) != 1;
  });
  return list;
}

void LtCall::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) CUDA_CHECK(cudaGetLastError());  // it knows when the GPU is lost
  CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt {} of [{}, {}] x [{}, {}], product {}: status {}", call,
        p_.M, p_.K, p_.N, p_.K, static_cast<int>(p_.kind), static_cast<int>(status));
}

std::string LtCall::name_of(const cublasLtMatmulAlgo_t& a) const {
  return fmt::format("tile {} stages {} swizzle {} custom {} inner {} cluster {}",
                     attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                     attribute<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
                     attribute<uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
                     attribute<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

template <class T>
T LtCall::attribute(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t what) const {
  T value = 0;
  size_t written = 0;
  check(lt_.algo_attribute(&algorithm, what, &value, sizeof value, &written), "attribute");
  return value;
}

// ---- which algorithm

namespace {

/// More tokens than this use the algorithm of this many: sweeps and self-tests take no more memory.
constexpr int64_t kMostTokens = 8192;
/// As few fill a chip or two with tiles, so that the number of them decides, not the speed of one: 296 rows
/// of 1.7B took twice the time of 256 by the algorithms of 512.
constexpr int64_t kFewRows = 512;

int64_t bucket_of(int64_t tokens) {
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens))), kMostTokens);
}
/// Four sizes in each octave of few rows.
int64_t bucket_of_rows(int64_t rows) {
  const int64_t whole = bucket_of(rows), step = whole / 8;
  return rows > kFewRows || step == 0 ? whole : (rows + step - 1) / step * step;
}

/// The product that stands for p in sweeps and self-tests: up to as many tokens use one algorithm. Sums over
/// token counts that are no multiples of 8 have their own: the library may treat them in another way.
Product representative(const Product& p) {
  Product many = p;
  if (p.kind == ProductKind::weight_gradient)
    many.K = p.K % 8 == 0 ? bucket_of(p.K) : bucket_of(p.K) - 1;
  else
    many.M = bucket_of_rows(p.M);
  return many;
}

/// Shortest of a few runs, in milliseconds.
float shortest_run(Libraries& libraries, const Product& p, const cublasLtMatmulAlgo_t& algorithm) {
  constexpr int kRuns = 4;
  const LtCall call(libraries, p);
  const cudaStream_t stream = stream_of(libraries.lane());
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  float shortest = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    CUDA_CHECK(cudaEventRecord(start, stream));
    call.run(algorithm);
    CUDA_CHECK(cudaEventRecord(end, stream));
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
void sort_by_time(Libraries& libraries, const Product& p, std::vector<Candidate>& list) {
  constexpr size_t kMostTimed = 24;  // the library lists its best guesses first
  if (list.size() > kMostTimed) list.resize(kMostTimed);
  std::vector<std::pair<float, Candidate>> timed;
  for (const Candidate& c : list) timed.emplace_back(shortest_run(libraries, p, c.algorithm), c);
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < list.size(); ++i) list[i] = timed[i].second;
}

/// What an earlier run found fastest, else the fastest of a sweep; in both cases only after its self-test.
/// The clock chooses among equal bits.
std::optional<cublasLtMatmulAlgo_t> choose_algorithm(Libraries& libraries, const Product& many,
                                                     const std::string& name) {
  std::vector<Candidate> list = LtCall(libraries, many).candidates();
  if (list.empty()) return std::nullopt;
  libraries.lane().wait();  // an error of what ran before is not one of the candidates'
  Trial trial(libraries.lane(), many);
  const auto passes = [&](const Candidate& c) {
    return trial.same_bits_as_chain([&](const Product& q) { LtCall(libraries, q).run(c.algorithm); });
  };
  const std::optional<std::string> known = libraries.fastest().find(name);
  for (const Candidate& c : list)
    if (c.name == known && passes(c)) return c.algorithm;
  sort_by_time(libraries, trial.product(), list);
  for (const Candidate& c : list) {
    if (!passes(c)) continue;
    libraries.fastest().put(name, c.name);
    return c.algorithm;
  }
  fail_class("cuBLASLt", many);
}

const std::optional<cublasLtMatmulAlgo_t>& algorithm_for(Libraries& libraries, const Product& p) {
  const Product many = representative(p);
  const GemmKey key{many.M, p.N, many.K, p.pitch, p.out, p.bias != nullptr, p.kind, p.add, p.scale};
  auto at = libraries.algorithms.find(key);
  if (at == libraries.algorithms.end())
    at = libraries.algorithms.emplace(key, choose_algorithm(libraries, many, key.name())).first;
  return at->second;
}

}  // namespace

bool multiply_lt(Ctx& ctx, const Product& p) {
  Libraries& libraries = libraries_of(ctx);
  const std::optional<cublasLtMatmulAlgo_t>& algorithm = algorithm_for(libraries, p);
  if (!algorithm) return false;
  LtCall(libraries, p).run(*algorithm);
  return true;
}

}  // namespace temper::cuda
