#include "kernels/cuda/libraries.h"

#include <dlfcn.h>

#include <cctype>

#include "src/core/file.h"
#include "src/core/gpu/driver.h"
#include "src/core/process/cuda_version.h"

namespace temper::cuda {

namespace {

/// The file of a GPU and a library version in the user's cache folder.
std::string choice_path(const std::string& gpu, const std::string& version) {
  const std::string folder = user_cache_folder();
  if (folder.empty()) return {};
  std::string name = fmt::format("gemm-{}-{}.json", gpu, version);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  return join_path(folder, name);
}

}  // namespace

std::string GemmKey::name() const {
  const char* of = kind == ProductKind::forward          ? ""
                   : kind == ProductKind::input_gradient ? "input gradient "
                                                         : "weight gradient ";
  return fmt::format("{}{} x {} x {} in rows of {} {}{}{}", of, rows, columns, features, pitch,
                     dtype_name(out), bias ? " with bias" : "", add ? ", added" : "");
}

Libraries::Libraries(Lane& lane) : lane_(lane) {
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device));
  CUDA_CHECK(cudaMalloc(&workspace_, kWorkspaceBytes));
  CUDA_CHECK(cudaMalloc(&counters_, kCounters * sizeof(int)));
  CUDA_CHECK(cudaMemsetAsync(counters_, 0, kCounters * sizeof(int), stream_of(lane)));
  find_in_driver(encode_, "cuTensorMapEncodeTiled");
}

Libraries::~Libraries() {
  if (lt_handle_ != nullptr) (void)lt_.destroy(lt_handle_);
  (void)cudaFree(workspace_);
  (void)cudaFree(counters_);
  // The library stays loaded: it registers handlers that run when the process ends.
}

const CublasLt& Libraries::lt() {
  if (lt_handle_ == nullptr) load_lt();
  return lt_;
}

void Libraries::load_lt() {
  lt_library_ = ::dlopen(kCublasLtFile, RTLD_NOW | RTLD_LOCAL);
  if (lt_library_ == nullptr)
    fail(Exit::environment, {.what = "cuBLASLt cannot be loaded",
                             .where = kCublasLtFile,
                             .why = ::dlerror(),
                             .fix = "install the CUDA 13 toolkit, or name its folder in LD_LIBRARY_PATH"});
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(lt_library_, name));
    CHECK(function != nullptr, "{} has no {}", kCublasLtFile, name);
  };
  get(lt_.version, "cublasLtGetVersion");
  get(lt_.create, "cublasLtCreate");
  get(lt_.destroy, "cublasLtDestroy");
  get(lt_.matmul, "cublasLtMatmul");
  get(lt_.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  get(lt_.algo_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
  get(lt_.desc_create, "cublasLtMatmulDescCreate");
  get(lt_.desc_destroy, "cublasLtMatmulDescDestroy");
  get(lt_.desc_set, "cublasLtMatmulDescSetAttribute");
  get(lt_.layout_create, "cublasLtMatrixLayoutCreate");
  get(lt_.layout_destroy, "cublasLtMatrixLayoutDestroy");
  get(lt_.preference_create, "cublasLtMatmulPreferenceCreate");
  get(lt_.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  get(lt_.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  const cublasStatus_t status = lt_.create(&lt_handle_);
  CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasLtCreate returned {}", static_cast<int>(status));
  const std::string gpu = device::gpu_name(), version = std::to_string(lt_.version());
  fastest_ = std::make_unique<ChoiceFile>(choice_path(gpu, version), gpu + ", cuBLASLt " + version);
}

CUtensorMap Libraries::tensor_map(const void* data, const std::vector<uint64_t>& sizes,
                                  const std::vector<uint64_t>& strides,
                                  const std::vector<uint32_t>& box) const {
  static_assert(sizeof(cuuint64_t) == sizeof(uint64_t) && sizeof(cuuint32_t) == sizeof(uint32_t));
  CUtensorMap map;
  const std::vector<uint32_t> steps(sizes.size(), 1);
  const CUresult result = encode_(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<uint32_t>(sizes.size()),
                                  const_cast<void*>(data), reinterpret_cast<const cuuint64_t*>(sizes.data()),
                                  reinterpret_cast<const cuuint64_t*>(strides.data()), box.data(),
                                  steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS, "tensor map of {} rows at {}: error {}", sizes[1], data,
        static_cast<int>(result));
  return map;
}

void open_libraries(Lane& lane) { lane.set_libraries(std::make_unique<Libraries>(lane)); }

}  // namespace temper::cuda
