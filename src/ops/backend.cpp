#include "src/ops/backend.h"

#include "src/ops/dispatch.h"

namespace temper {

#ifdef TEMPER_CUDA
struct Backend::Handles {
  std::unique_ptr<cuda::Libraries, cuda::ReleaseLibraries> libraries = cuda::open_libraries();
};
#else
struct Backend::Handles {};
#endif

Backend::Backend(Device device, int threads) : arena_(device), ctx_{arena_, device, threads} {
#ifdef TEMPER_CUDA
  if (device == Device::cpu) return;
  handles_ = std::make_unique<Handles>();
  ctx_.libraries = handles_->libraries.get();
#endif
}
Backend::~Backend() = default;

}  // namespace temper
