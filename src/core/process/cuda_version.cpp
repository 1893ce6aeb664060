#include "src/core/process/cuda_version.h"

#include <cctype>
#include <fstream>

#include "src/core/check.h"

#ifdef TEMPER_CUDA
#include <dlfcn.h>

#include "src/core/cuda.h"
#endif

namespace temper {
namespace {

constexpr const char* kNone = "none found";

/// The first word of digits and dots in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Release
/// Build ...". Empty without it.
std::string kernel_module(const std::string& root) {
  std::ifstream file(root + "/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return "";
}

#ifdef TEMPER_CUDA
/// 13000 -> "13.0", as CUDA numbers its versions.
std::string dotted(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

/// The newest CUDA of the driver's library; empty without one.
std::string driver_cuda() {
  int number = 0;
  return cudaDriverGetVersion(&number) == cudaSuccess && number > 0 ? dotted(number) : "";
}
#else
std::string driver_cuda() { return ""; }
#endif

}  // namespace

std::string gpu_driver_version(const std::string& root) {
  const std::string module = kernel_module(root), cuda = driver_cuda();
  if (cuda.empty()) return module.empty() ? kNone : module;
  return fmt::format("{}, for CUDA {} and older", module.empty() ? "unknown" : module, cuda);
}

#ifdef TEMPER_CUDA
std::string cuda_version() { return dotted(CUDART_VERSION); }

std::string cublas_version() {
  void* const library = ::dlopen(kCublasLtFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return kNone;
  // Stays loaded: it registers handlers that run when the process ends.
  const auto version = reinterpret_cast<size_t (*)()>(::dlsym(library, "cublasLtGetVersion"));
  if (version == nullptr) return kNone;
  const size_t number = version();  // 130100: 13.1.0
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}
#else
std::string cuda_version() { return "not built in"; }
std::string cublas_version() { return cuda_version(); }
#endif

}  // namespace temper
