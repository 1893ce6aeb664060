#include "src/core/gpu/cuda_memory.h"

#ifdef TEMPER_CUDA
#include <cuda.h>

#include <map>
#include <mutex>

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

/// The driver counts its errors as the runtime does.
void check_driver(CUresult result, const char* call, int line) {
  if (result != CUDA_SUCCESS) fail_cuda(static_cast<cudaError_t>(result), call, __FILE__, line);
}

/// False when none is left.
bool create(int64_t bytes, CUmemGenericAllocationHandle& memory) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = this_gpu();
  const CUresult made = driver().create(&memory, static_cast<size_t>(bytes), &properties, 0);
  if (made == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check_driver(made, "cuMemCreate", __LINE__);
  return true;
}

/// Memory of this process that backs no addresses at the moment.
class Spare {
 public:
  bool take(int64_t bytes, CUmemGenericAllocationHandle& memory) {
    const std::lock_guard lock(mutex_);
    const auto found = by_size_.find(bytes);
    if (found == by_size_.end()) return false;
    memory = found->second;
    by_size_.erase(found);
    return true;
  }
  void put(int64_t bytes, CUmemGenericAllocationHandle memory) {
    const std::lock_guard lock(mutex_);
    by_size_.emplace(bytes, memory);
  }
  void release_all() {
    const std::lock_guard lock(mutex_);
    for (const auto& [bytes, memory] : by_size_) (void)driver().release(memory);
    by_size_.clear();
  }

 private:
  std::mutex mutex_;
  std::multimap<int64_t, CUmemGenericAllocationHandle> by_size_;
};

/// The driver knows of it, so it lives as long as the process: as malloc's does.
Spare& spare() {
  static Spare memory;
  return memory;
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
  const auto size = static_cast<size_t>(bytes);
  CUmemGenericAllocationHandle memory = 0;
  if (!spare().take(bytes, memory) && !create(bytes, memory)) {
    spare().release_all();  // in pieces of other sizes
    if (!create(bytes, memory)) return false;
  }
  CUmemAccessDesc access{};
  access.location = this_gpu();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver().map(address(at), size, 0, memory, 0), "cuMemMap", __LINE__);
  check_driver(driver().set_access(address(at), size, &access, 1), "cuMemSetAccess", __LINE__);
  handle = memory;
  return true;
}

void give_back(char* at, int64_t bytes, uint64_t handle) noexcept {
  (void)driver().unmap(address(at), static_cast<size_t>(bytes));
  spare().put(bytes, handle);
}

char* allocate_shared(int64_t bytes) {
  void* base = nullptr;
  for (const bool again : {false, true}) {
    const cudaError_t error = cudaMalloc(&base, static_cast<size_t>(bytes));
    if (error == cudaSuccess) return static_cast<char*>(base);
    if (error != cudaErrorMemoryAllocation) CUDA_CHECK(error);
    (void)cudaGetLastError();
    if (!again) spare().release_all();
  }
  return nullptr;
}

void release_shared(char* base) noexcept { (void)cudaFree(base); }

void pin(char* base, int64_t bytes) {
  void* seen = nullptr;
  const cudaError_t error = cudaHostRegister(base, static_cast<size_t>(bytes), cudaHostRegisterDefault);
  if (error == cudaSuccess && cudaHostGetDevicePointer(&seen, base, 0) == cudaSuccess && seen == base) return;
  fail(Exit::storage,
       {.what = fmt::format("{} bytes of host memory cannot be given to the GPU", bytes),
        .where = "this rank",
        .why = error == cudaSuccess ? "the GPU would see them at other addresses" : cudaGetErrorString(error),
        .fix = "see what else uses memory of this machine, or leave train.offload.optimizer and "
               "roles.reference.offload false"});
}

void unpin(char* base) noexcept { (void)cudaHostUnregister(base); }

}  // namespace temper::cuda_memory
#endif
