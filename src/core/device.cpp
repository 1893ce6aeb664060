#include "src/core/device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "src/core/check.h"
#include "src/core/cuda_version.h"

#ifdef TEMPER_CUDA
#include "src/core/cuda.h"
#endif

namespace temper {

#ifdef TEMPER_CUDA
std::string cuda_version() { return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); }

void fail_cuda(cudaError_t error, const char* call, const char* file, int line) {
  fail(Exit::internal,
       {.what = fmt::format("CUDA error {}: {}", cudaGetErrorName(error), cudaGetErrorString(error)),
        .where = fmt::format("{}:{}, {}", file, line, call),
        .why = "a kernel or a driver call failed; errors of kernels come out at a later call",
        .fix = "run once under compute-sanitizer to find the kernel"});
}
#else
std::string cuda_version() { return "not built in"; }
#endif

namespace device {
namespace {

constexpr size_t kHostAlignment = 64, kHugePage = size_t{2} << 20;

[[noreturn]] void fail_memory(const char* what, int64_t bytes, const std::string& why,
                              const std::string& fix) {
  fail(Exit::storage, {.what = what,
                       .where = "this rank",
                       .why = fmt::format("{} bytes wanted{}{}", bytes, why.empty() ? "" : "; ", why),
                       .fix = fix});
}

void* allocate_host(int64_t bytes, const std::string& fix) {
  const auto size = static_cast<size_t>(bytes);
  const size_t alignment = size < 2 * kHugePage ? kHostAlignment : kHugePage;
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) fail_memory("out of host memory", bytes, "", fix);
  // Products of weights that lie on small pages are 5 to 12 % slower: one row of a weight is a page or more.
  if (alignment == kHugePage) (void)madvise(p, size, MADV_HUGEPAGE);  // advice: nothing is lost without it
  return p;
}

void copy_rows_host(void* to, const void* from, int64_t bytes, int64_t rows, int64_t pitch) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(static_cast<char*>(to) + r * pitch, static_cast<const char*>(from) + r * pitch,
                static_cast<size_t>(bytes));
}

}  // namespace

#ifdef TEMPER_CUDA

Found find_gpus() {
  constexpr int kMajor = 9;
  Found found;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    found.why = error != cudaSuccess ? cudaGetErrorString(error) : "the driver reports no GPU";
    return found;
  }
  for (int i = 0; i < count; ++i) {
    int major = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
    if (major != kMajor) {
      found.why = fmt::format("GPU {} has compute capability {}, the kernels need {}.0 (H100, H200)", i,
                              major, kMajor);
      return found;
    }
  }
  found.count = count;
  return found;
}

void select_gpu(int index) {
  CUDA_CHECK(cudaSetDevice(index));
  CUDA_CHECK(cudaFree(nullptr));
}

std::string gpu_name() {
  int index = 0;
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDevice(&index));
  CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  return fmt::format("{}, {} multiprocessors", p.name, p.multiProcessorCount);
}

void* allocate(Device d, int64_t bytes, const std::string& fix) {
  if (d == Device::cpu) return allocate_host(bytes, fix);
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky, but it would come out at the next launch check
    fail_memory("out of GPU memory", bytes, fmt::format("{} are free", free_bytes()), fix);
  }
  CUDA_CHECK(error);
  return p;
}

void release(Device d, void* p) noexcept {
  if (d == Device::cpu)
    std::free(p);
  else
    (void)cudaFree(p);
}

void* allocate_pinned(int64_t bytes) {
  void* p = nullptr;
  CUDA_CHECK(cudaMallocHost(&p, static_cast<size_t>(bytes)));
  return p;
}

void release_pinned(void* p) noexcept { (void)cudaFreeHost(p); }

void copy_to_device(Device d, void* to, const void* from, int64_t bytes) {
  if (d == Device::cpu)
    copy_rows_host(to, from, bytes, 1, bytes);
  else
    CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, gpu_stream()));
}

void copy_to_pinned(Device d, void* to, const void* from, int64_t bytes) {
  if (d == Device::cpu) return copy_rows_host(to, from, bytes, 1, bytes);
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, gpu_stream()));
}

void copy_from_device(Device d, void* to, const void* from, int64_t bytes) {
  copy_to_pinned(d, to, from, bytes);
  synchronize(d);
}

void copy_rows(Device d, void* to, const void* from, int64_t bytes, int64_t rows, int64_t pitch) {
  if (d == Device::cpu) return copy_rows_host(to, from, bytes, rows, pitch);
  const auto step = static_cast<size_t>(pitch);
  CUDA_CHECK(cudaMemcpy2DAsync(to, step, from, step, static_cast<size_t>(bytes), static_cast<size_t>(rows),
                               cudaMemcpyDeviceToDevice, gpu_stream()));
}

void fill_rows(Device d, void* to, int value, int64_t bytes, int64_t rows, int64_t pitch) {
  if (d == Device::cuda) {
    CUDA_CHECK(cudaMemset2DAsync(to, static_cast<size_t>(pitch), value, static_cast<size_t>(bytes),
                                 static_cast<size_t>(rows), gpu_stream()));
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    std::memset(static_cast<char*>(to) + r * pitch, value, static_cast<size_t>(bytes));
}

void synchronize(Device d) {
  if (d == Device::cuda) CUDA_CHECK(cudaStreamSynchronize(gpu_stream()));
}

int64_t free_bytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

namespace {

/// Ends a capture that an exception left open.
struct Capture {
  cudaGraph_t graph = nullptr;
  bool open = true;
  Capture() { CUDA_CHECK(cudaStreamBeginCapture(gpu_stream(), cudaStreamCaptureModeThreadLocal)); }
  void end() {
    open = false;
    CUDA_CHECK(cudaStreamEndCapture(gpu_stream(), &graph));
  }
  ~Capture() {
    if (open) (void)cudaStreamEndCapture(gpu_stream(), &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
};

}  // namespace

Graph::~Graph() {
  if (recorded()) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}
void Graph::record(const std::function<void()>& work) {
  CHECK(!recorded(), "a graph recorded twice");
  Capture capture;
  work();
  capture.end();
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&executable, capture.graph, 0));
  executable_ = executable;
}
void Graph::replay() const {
  CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), gpu_stream()));
}

#else  // a build without CUDA: nobody gets past find_gpus

Found find_gpus() { return {0, "this build has no CUDA backend"}; }
void select_gpu(int) { CHECK(false, "this build has no CUDA backend"); }
std::string gpu_name() { return "none"; }
void* allocate(Device, int64_t bytes, const std::string& fix) { return allocate_host(bytes, fix); }
void release(Device, void* p) noexcept { std::free(p); }
void* allocate_pinned(int64_t bytes) { return allocate_host(bytes, ""); }
void release_pinned(void* p) noexcept { std::free(p); }
void copy_to_device(Device, void* to, const void* from, int64_t bytes) {
  copy_rows_host(to, from, bytes, 1, bytes);
}
void copy_to_pinned(Device, void* to, const void* from, int64_t bytes) {
  copy_rows_host(to, from, bytes, 1, bytes);
}
void copy_from_device(Device, void* to, const void* from, int64_t bytes) {
  copy_rows_host(to, from, bytes, 1, bytes);
}
void copy_rows(Device, void* to, const void* from, int64_t bytes, int64_t rows, int64_t pitch) {
  copy_rows_host(to, from, bytes, rows, pitch);
}
void fill_rows(Device, void* to, int value, int64_t bytes, int64_t rows, int64_t pitch) {
  for (int64_t r = 0; r < rows; ++r)
    std::memset(static_cast<char*>(to) + r * pitch, value, static_cast<size_t>(bytes));
}
void synchronize(Device) {}
int64_t free_bytes() { return 0; }
Graph::~Graph() = default;
void Graph::record(const std::function<void()>&) { CHECK(false, "this build has no CUDA backend"); }
void Graph::replay() const { CHECK(false, "this build has no CUDA backend"); }

#endif

}  // namespace device
}  // namespace temper
