#include "src/core/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/core/check.h"
#include "src/core/lane.h"
#include "src/core/process/progress.h"

#ifdef TEMPER_CUDA
#include "src/core/cuda.h"
#include "src/core/process/out_of_memory.h"
#endif

namespace temper {

#ifdef TEMPER_CUDA
namespace {

struct ErrorKind {
  Exit code;
  const char *why, *fix;
  bool lost = false;
};

/// Most errors are defects of temper; these are of the machine.
ErrorKind kind_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return {Exit::storage, "no memory is left for this call, of the GPU or pinned of the host",
              "see `temper check` for what a rank needs, and whether another process uses the GPU"};
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      return {Exit::environment, "another process holds the GPU for itself",
              "wait for it to end, or choose another GPU with CUDA_VISIBLE_DEVICES"};
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorNoKernelImageForDevice:
      return {Exit::environment, "driver and program do not fit together",
              "install a driver of CUDA 13 or later, or build temper on this machine"};
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorHardwareStackError:
    case cudaErrorExternalDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorDeviceUninitialized:
    case cudaErrorUnknown:
      return {Exit::environment, "the GPU failed or was lost",
              "look at `nvidia-smi` and the kernel's log (Xid); run on another GPU or node", true};
    default:
      return {Exit::internal, "a kernel or a driver call failed; errors of kernels come out at a later call",
              "run once under compute-sanitizer to find the kernel"};
  }
}

}  // namespace

void fail_cuda(cudaError_t error, const char* call, const char* file, int line) {
  const ErrorKind kind = kind_of(error);
  const Problem problem{
      .what = fmt::format("CUDA error {}: {}", cudaGetErrorName(error), cudaGetErrorString(error)),
      .where = fmt::format("{}:{}, {}", file, line, call),
      .why = kind.why,
      .fix = kind.fix};
  if (kind.lost) throw DeviceLost(problem);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(problem);
  fail(kind.code, problem);
}
#endif

namespace device {
namespace {

void copy_host(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));  // an empty vector's data may be null
}

/// So many bytes are progress: a cache of hundreds of GB takes minutes, as the system backs its pages.
constexpr int64_t kFilledAtOnce = int64_t{32} << 20;

void fill_rows_host(void* to, int value, int64_t bytes, int64_t rows, int64_t pitch) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = 0; at < bytes; at += kFilledAtOnce) {
      std::memset(static_cast<char*>(to) + r * pitch + at, value,
                  static_cast<size_t>(std::min(kFilledAtOnce, bytes - at)));
      note_progress();
    }
}

}  // namespace

#ifdef TEMPER_CUDA

Found find_gpus() {
  constexpr int kMajor = 9;
  Found found;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    int driver = 0;  // without one the error would speak of a driver that is too old
    const bool none = cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
    found.why = none                   ? "no driver of NVIDIA was found (libcuda.so.1)"
                : error != cudaSuccess ? cudaGetErrorString(error)
                                       : "the driver reports no GPU";
    return found;
  }
  for (int i = 0; i < count; ++i) {
    int major = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
    if (major == kMajor)
      found.gpus.push_back(i);
    else
      found.why = fmt::format("GPU {} has compute capability {}.x, the kernels need {}.0 (H100, H200)", i,
                              major, kMajor);
  }
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

std::string gpu_uuid() {
  int index = 0;
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDevice(&index));
  CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  std::string text;
  for (const char byte : p.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

int64_t gpu_total_bytes(int index) {
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  return static_cast<int64_t>(p.totalGlobalMem);
}

GpuMemory gpu_memory() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

void* allocate_pinned(int64_t bytes) {
  void* p = nullptr;
  CUDA_CHECK(cudaMallocHost(&p, static_cast<size_t>(bytes)));
  return p;
}

void release_pinned(void* p) noexcept { (void)cudaFreeHost(p); }

void upload(Device d, void* to, const void* from, int64_t bytes) {
  if (d != Device::cuda) return d == Device::cpu ? copy_host(to, from, bytes) : void();
  CUDA_CHECK(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  // The copy of pageable memory returns when the data is on its way, and lanes do not wait for this stream.
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

void clear(Device d, void* to, int64_t bytes) {
  if (d != Device::cuda) return d == Device::cpu ? fill_rows_host(to, 0, bytes, 1, bytes) : void();
  CUDA_CHECK(cudaMemset(to, 0, static_cast<size_t>(bytes)));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

namespace {

constexpr int64_t kTakenAtOnce = int64_t{64} << 10;

bool is_pinned(const void* p) {
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, p));
  return attributes.type != cudaMemoryTypeUnregistered;
}

}  // namespace

void copy_to_device(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (counts_only(lane.device())) return;
  if (lane.device() == Device::cpu) return copy_host(to, from, bytes);
  // Before it takes much that is not pinned, a driver may wait for the lane.
  if (lane.moves_on() && bytes > kTakenAtOnce && !is_pinned(from)) lane.wait();
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_of(lane)));
}

void copy_to_pinned(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (counts_only(lane.device())) return;
  if (lane.device() == Device::cpu) return copy_host(to, from, bytes);
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_of(lane)));
}

void copy_from_device(Lane& lane, void* to, const void* from, int64_t bytes) {
  copy_to_pinned(lane, to, from, bytes);
  lane.wait();
}

void copy(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (counts_only(lane.device())) return;
  if (lane.device() == Device::cpu) return copy_host(to, from, bytes);
  CUDA_CHECK(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_of(lane)));
}

void fill_rows(Lane& lane, void* to, int value, int64_t bytes, int64_t rows, int64_t pitch) {
  if (counts_only(lane.device()) || bytes == 0 || rows == 0) return;
  if (lane.device() == Device::cpu) return fill_rows_host(to, value, bytes, rows, pitch);
  CUDA_CHECK(cudaMemset2DAsync(to, static_cast<size_t>(pitch), value, static_cast<size_t>(bytes),
                               static_cast<size_t>(rows), stream_of(lane)));
}

namespace {

/// Ends a capture that an exception left open.
struct Capture {
  cudaGraph_t graph = nullptr;
  bool open = true;
  cudaStream_t stream;
  explicit Capture(cudaStream_t s) : stream(s) {
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  void end() {
    open = false;
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  }
  ~Capture() {
    if (open) (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
};

}  // namespace

Graph::~Graph() {
  if (recorded()) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}
void Graph::record(Lane& lane, const std::function<void()>& work) {
  CHECK(!recorded(), "a graph recorded twice");
  Capture capture(stream_of(lane));
  work();
  capture.end();
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&executable, capture.graph, 0));
  executable_ = executable;
}
void Graph::replay(Lane& lane) const {
  CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), stream_of(lane)));
}

#else  // a build without CUDA: nobody gets past find_gpus

Found find_gpus() { return {{}, "this build has no CUDA backend"}; }
void select_gpu(int) { CHECK(false, "this build has no CUDA backend"); }
std::string gpu_name() { return "none"; }
std::string gpu_uuid() { return ""; }
int64_t gpu_total_bytes(int) { return 0; }
GpuMemory gpu_memory() { return {}; }
void* allocate_pinned(int64_t bytes) {
  constexpr size_t kAlignment = 64;
  void* p =
      std::aligned_alloc(kAlignment, (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment);
  CHECK(p != nullptr, "no {} bytes of host memory", bytes);
  return p;
}
void release_pinned(void* p) noexcept { std::free(p); }
void upload(Device d, void* to, const void* from, int64_t bytes) {
  if (d == Device::cpu) copy_host(to, from, bytes);
}
void clear(Device d, void* to, int64_t bytes) {
  if (d == Device::cpu) fill_rows_host(to, 0, bytes, 1, bytes);
}
void copy_to_device(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (lane.device() == Device::cpu) copy_host(to, from, bytes);
}
void copy_to_pinned(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (lane.device() == Device::cpu) copy_host(to, from, bytes);
}
void copy_from_device(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (lane.device() == Device::cpu) copy_host(to, from, bytes);
}
void copy(Lane& lane, void* to, const void* from, int64_t bytes) {
  if (lane.device() == Device::cpu) copy_host(to, from, bytes);
}
void fill_rows(Lane& lane, void* to, int value, int64_t bytes, int64_t rows, int64_t pitch) {
  if (lane.device() == Device::cpu) fill_rows_host(to, value, bytes, rows, pitch);
}
Graph::~Graph() = default;
void Graph::record(Lane&, const std::function<void()>&) { CHECK(false, "this build has no CUDA backend"); }
void Graph::replay(Lane&) const { CHECK(false, "this build has no CUDA backend"); }

#endif

}  // namespace device

namespace device {

struct HostWindows::Window {
  Lane lane{Device::cuda};
  PinnedMemory memory = make_pinned(kBytes);
};

HostWindows::HostWindows(Device device) : device_(device) {
  if (device == Device::cuda)
    for (std::unique_ptr<Window>& w : windows_) w = std::make_unique<Window>();
}
HostWindows::~HostWindows() = default;

void HostWindows::read(const void* data, int64_t bytes,
                       const std::function<void(const char*, int64_t)>& see) {
  if (device_ == Device::cpu) return see(static_cast<const char*>(data), bytes);
  if (counts_only(device_)) return;
  const auto size = [&](int64_t at) { return std::min(kBytes, bytes - at); };
  const auto window = [&](int64_t at) -> Window& { return *windows_[static_cast<size_t>(at / kBytes % 2)]; };
  const auto begin = [&](int64_t at) {
    if (at < bytes)
      copy_to_pinned(window(at).lane, window(at).memory.get(), static_cast<const char*>(data) + at, size(at));
  };
  begin(0);
  for (int64_t at = 0; at < bytes; at += kBytes) {
    begin(at + kBytes);
    window(at).lane.wait();
    see(window(at).memory.get(), size(at));
  }
}

void HostWindows::write(void* data, int64_t bytes, const std::function<void(char*, int64_t, int64_t)>& fill) {
  if (device_ == Device::cpu) return fill(static_cast<char*>(data), 0, bytes);
  if (counts_only(device_)) return;
  for (int64_t at = 0; at < bytes; at += kBytes) {
    Window& w = *windows_[static_cast<size_t>(at / kBytes % 2)];
    const int64_t n = std::min(kBytes, bytes - at);
    w.lane.wait();
    fill(w.memory.get(), at, n);
    copy_to_device(w.lane, static_cast<char*>(data) + at, w.memory.get(), n);
  }
  for (const std::unique_ptr<Window>& w : windows_) w->lane.wait();
}

}  // namespace device
}  // namespace temper
