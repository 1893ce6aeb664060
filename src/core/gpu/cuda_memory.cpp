#include "src/core/gpu/cuda_memory.h"

#ifdef TEMPER_CUDA
#include <map>
#include <mutex>

#include "src/core/gpu/driver.h"

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
    find_in_driver(reserve, "cuMemAddressReserve");
    find_in_driver(unreserve, "cuMemAddressFree");
    find_in_driver(create, "cuMemCreate");
    find_in_driver(release, "cuMemRelease");
    find_in_driver(map, "cuMemMap");
    find_in_driver(unmap, "cuMemUnmap");
    find_in_driver(set_access, "cuMemSetAccess");
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

/// False when none is left.
bool create(int64_t bytes, CUmemGenericAllocationHandle& memory) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = this_gpu();
  const CUresult made = driver().create(&memory, static_cast<size_t>(bytes), &properties, 0);
  if (made == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check_driver(made, "cuMemCreate");
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
  check_driver(driver().map(address(at), size, 0, memory, 0), "cuMemMap");
  check_driver(driver().set_access(address(at), size, &access, 1), "cuMemSetAccess");
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
        .fix = "see what else uses memory of this machine, or keep less there for the GPU (offload)"});
}

void unpin(char* base) noexcept { (void)cudaHostUnregister(base); }

}  // namespace temper::cuda_memory
#endif
