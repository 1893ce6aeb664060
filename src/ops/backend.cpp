#include "src/ops/backend.h"

#include "src/ops/dispatch.h"

namespace temper {

Backend::Backend(Device device, int threads)
    : lane_(device),
      scratch_(device, MemoryUse::scratch),
      ctx_{scratch_, lane_, Threads(threads, counts_only(device))} {
#ifdef TEMPER_CUDA
  if (device == Device::cuda) cuda::open_libraries(lane_);
#endif
}

}  // namespace temper
