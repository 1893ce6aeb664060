#include "src/ops/backend.h"

#include "src/ops/dispatch.h"

namespace temper {

Backend::Backend(Device device, int threads)
    : scratch_(device, MemoryUse::scratch),
      lane_(device),
      team_(threads),
      ctx_{scratch_, lane_, counts_only(device) ? Threads::counted(threads) : Threads(team_)} {
#ifdef TEMPER_CUDA
  if (device == Device::cuda) cuda::open_libraries(lane_);
#endif
}

}  // namespace temper
