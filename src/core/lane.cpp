#include "src/core/lane.h"

#include <chrono>
#include <exception>
#include <thread>

#include "src/core/check.h"
#ifdef TEMPER_CUDA
#include "src/core/cuda.h"
#endif

namespace temper {

#ifdef TEMPER_CUDA
namespace {

/// Until `state` says something else than that it is not ready, calls move_on.
template <class State>
void move_on_until(void (*move_on)(), const State& state) {
  constexpr int64_t kSpins = 2000;  // some milliseconds
  for (int64_t polls = 0; state() == cudaErrorNotReady; ++polls) {
    (void)cudaGetLastError();  // it is no error, and a launch must not find it
    move_on();
    if (polls > kSpins) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace
#endif

Lane::Lane(Device device, [[maybe_unused]] Turn turn) : device_(device) {
#ifdef TEMPER_CUDA
  if (device != Device::cuda) return;
  cudaStream_t stream = nullptr;
  int last = 0, first = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&last, &first));
  CUDA_CHECK(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, turn == Turn::first ? first : last));
  stream_ = stream;
#endif
}

void Lane::settle() noexcept {
  try {
    if (stream_ != nullptr && std::uncaught_exceptions() == 0) wait();
  } catch (const Error&) {  // of a GPU that every later call finds in the same state
  }
}

/// Memory of its work may go after it.
Lane::~Lane() {
  settle();
  libraries_.reset();
#ifdef TEMPER_CUDA
  for (void* event : {event_, near_})
    if (event != nullptr) (void)cudaEventDestroy(static_cast<cudaEvent_t>(event));
  if (stream_ != nullptr) (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
#endif
}

void Lane::follow([[maybe_unused]] const Lane& other) {
#ifdef TEMPER_CUDA
  if (device_ != Device::cuda) return;
  auto event = static_cast<cudaEvent_t>(event_);
  if (event == nullptr) {
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    event_ = event;
  }
  CUDA_CHECK(cudaEventRecord(event, stream_of(other)));
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(*this), event));
  ordered_ = true;
  if (other.moves_on()) move_on_ = other.move_on_;
#endif
}

void Lane::wait() {
#ifdef TEMPER_CUDA
  if (device_ != Device::cuda) return;
  if (move_on_ != nullptr) move_on_until(move_on_, [&] { return cudaStreamQuery(stream_of(*this)); });
  CUDA_CHECK(cudaStreamSynchronize(stream_of(*this)));
#endif
}

/// What was queued at the call before is done. While a graph is recorded nothing is queued.
void Lane::stay_near() {
#ifdef TEMPER_CUDA
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream_of(*this), &capture));
  if (capture != cudaStreamCaptureStatusNone) return;
  auto event = static_cast<cudaEvent_t>(near_);
  if (event != nullptr) {
    move_on_until(move_on_, [&] { return cudaEventQuery(event); });
  } else {
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    near_ = event;
  }
  CUDA_CHECK(cudaEventRecord(event, stream_of(*this)));
#endif
}

}  // namespace temper
