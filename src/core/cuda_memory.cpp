#include "src/core/cuda_memory.h"

#ifdef TEMPER_CUDA
#include <cuda.h>

#include "src/core/cuda.h"
#include "src/core/device.h"

namespace temper::cuda_memory {
namespace {

struct Driver {
  decltype(&::cuMemAddressReserve) reserve;
  decltype(&::cuMemAddressFree) unreserve;
  decltype(&::cuMemCreate) create;
  decltype(&::cuMemRelease) release;
  decltype(&::cuMemMap) map;
  decltype(&::cuMemUnmap) unmap;
  decltype(&::cuMemSetAccess) set_access;

  Driver() {
    get(reserve, "cuMemAddressReserve");
    get(unreserve, "cuMemAddressFree");
    get(create, "cuMemCreate");
    get(release, "cuMemRelease");
    get(map, "cuMemMap");
    get(unmap, "cuMemUnmap");
    get(set_access, "cuMemSetAccess");
  }

 private:
  template <class F>
  static void get(F& function, const char* name) {
    cudaDriverEntryPointQueryResult found;
    void* address = nullptr;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found));
    if (address == nullptr || found != cudaDriverEntryPointSuccess)
      fail(Exit::environment, {.what = "the GPU driver is too old",
                               .where = device::gpu_name(),
                               .why = fmt::format("it has no {}", name),
                               .fix = "install a driver of CUDA 12 or later"});
    function = reinterpret_cast<F>(address);
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

CUdeviceptr address(const char* p) { return reinterpret_cast<CUdeviceptr>(p); }

CUmemLocation this_gpu() {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = index;
  return location;
}

}  // namespace

char* reserve(int64_t bytes) {
  CUdeviceptr p = 0;
  if (driver().reserve(&p, static_cast<size_t>(bytes), 0, 0, 0) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<char*>(p);
}

void unreserve(char* base, int64_t bytes) noexcept {
  (void)driver().unreserve(address(base), static_cast<size_t>(bytes));
}

bool back(char* at, int64_t bytes, uint64_t& handle) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = this_gpu();
  CUmemGenericAllocationHandle memory = 0;
  const auto size = static_cast<size_t>(bytes);
  if (const CUresult made = driver().create(&memory, size, &properties, 0); made != CUDA_SUCCESS) {
    CHECK(made == CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate of {} bytes: error {}", bytes,
          static_cast<int>(made));
    return false;
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult mapped = driver().map(address(at), size, 0, memory, 0);
  CHECK(mapped == CUDA_SUCCESS, "cuMemMap of {} bytes: error {}", bytes, static_cast<int>(mapped));
  const CUresult opened = driver().set_access(address(at), size, &access, 1);
  CHECK(opened == CUDA_SUCCESS, "cuMemSetAccess of {} bytes: error {}", bytes, static_cast<int>(opened));
  handle = memory;
  return true;
}

void give_back(char* at, int64_t bytes, uint64_t handle) noexcept {
  (void)driver().unmap(address(at), static_cast<size_t>(bytes));
  (void)driver().release(handle);
}

}  // namespace temper::cuda_memory
#endif
