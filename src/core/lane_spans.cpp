#include "src/core/lane_spans.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "src/core/lane.h"

#ifdef TEMPER_CUDA
#include "src/core/cuda.h"
#endif

namespace temper {

namespace {

constexpr double kUnended = -1;

#ifdef TEMPER_CUDA

class Event {
 public:
  Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaError_t record(const Lane& lane) const { return cudaEventRecord(event_, stream_of(lane)); }
  double seconds_after(const Event& other) const {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, other.event_, event_));
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Pair {
  std::string name;
  Event begin, end;
  bool ended = false;
};

/// Spans of a GPU: pairs of events are made once and used again.
class GpuSpans {
 public:
  void start(Lane& lane, const std::function<double()>& now) {
    lane.wait();
    CUDA_CHECK(zero_.record(lane));
    lane.wait();
    zero_seconds_ = now();
    used_ = 0;
  }
  int64_t begin(const Lane& lane, std::string name) {
    if (used_ == pairs_.size()) pairs_.push_back(std::make_unique<Pair>());
    Pair& pair = *pairs_[used_];
    pair.name = std::move(name);
    pair.ended = false;
    CUDA_CHECK(pair.begin.record(lane));
    return static_cast<int64_t>(used_++);
  }
  void end(const Lane& lane, int64_t index) {
    Pair& pair = *pairs_[static_cast<size_t>(index)];
    // Nothing is asked about work that an exception cut off.
    pair.ended = pair.end.record(lane) == cudaSuccess;
  }
  std::vector<LaneSpans::Span> take() const {
    std::vector<LaneSpans::Span> spans;
    for (size_t i = 0; i < used_; ++i) {
      const Pair& pair = *pairs_[i];
      if (pair.ended)
        spans.push_back({pair.name, zero_seconds_ + pair.begin.seconds_after(zero_),
                         zero_seconds_ + pair.end.seconds_after(zero_)});
    }
    return spans;
  }

 private:
  Event zero_;
  double zero_seconds_ = 0;  // of the host, when the GPU came to it
  std::vector<std::unique_ptr<Pair>> pairs_;
  size_t used_ = 0;
};

#else  // a build without CUDA: no lane of a GPU

struct GpuSpans {
  void start(Lane&, const std::function<double()>&) {}
  int64_t begin(const Lane&, const std::string&) { return -1; }
  void end(const Lane&, int64_t) {}
  std::vector<LaneSpans::Span> take() const { return {}; }
};

#endif

}  // namespace

struct LaneSpans::Events {
  std::function<double()> now;
  std::unique_ptr<GpuSpans> gpu;  // null: the lane is one of the CPU
  std::vector<Span> spans;        // of the CPU
};

void LaneSpans::start(Lane& lane, const std::function<double()>& now) {
  if (!events_) events_ = std::make_unique<Events>();
  events_->now = now;
  events_->spans.clear();
  if (lane.device() == Device::cuda) {
    if (!events_->gpu) events_->gpu = std::make_unique<GpuSpans>();
    events_->gpu->start(lane, now);
  }
  on_ = true;
}

int64_t LaneSpans::begin(Lane& lane, const char* name, int64_t number) {
  std::string text = fmt::format("{} {}", name, number);
  if (events_->gpu) return events_->gpu->begin(lane, std::move(text));
  events_->spans.push_back({std::move(text), events_->now(), kUnended});
  return std::ssize(events_->spans) - 1;
}

void LaneSpans::end(Lane& lane, int64_t index) {
  if (events_->gpu) return events_->gpu->end(lane, index);
  events_->spans[static_cast<size_t>(index)].end = events_->now();
}

std::vector<LaneSpans::Span> LaneSpans::take() {
  on_ = false;
  if (events_->gpu) return events_->gpu->take();
  std::erase_if(events_->spans, [](const Span& span) { return span.end == kUnended; });
  return std::exchange(events_->spans, {});
}

LaneSpans::LaneSpans() = default;
LaneSpans::~LaneSpans() = default;

}  // namespace temper
