#include "src/core/lane_spans.h"

#include "src/core/lane.h"

#ifdef TEMPER_CUDA
#include "src/core/cuda.h"
#endif

namespace temper {

#ifdef TEMPER_CUDA

namespace {

class Event {
 public:
  Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const Lane& lane) const { CUDA_CHECK(cudaEventRecord(event_, stream_of(lane))); }
  cudaEvent_t get() const { return event_; }
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

}  // namespace

struct LaneSpans::Events {
  Event zero;
  double zero_seconds = 0;  // of the host, when the GPU came to it
  std::vector<std::unique_ptr<Pair>> pairs;
  size_t used = 0;
};

void LaneSpans::start(Lane& lane, const std::function<double()>& now) {
  if (lane.device() != Device::cuda) return;
  if (!events_) events_ = std::make_unique<Events>();
  lane.wait();
  events_->zero.record(lane);
  lane.wait();
  events_->zero_seconds = now();
  events_->used = 0;
  on_ = true;
}

int64_t LaneSpans::begin(Lane& lane, const char* name, int64_t number) {
  if (events_->used == events_->pairs.size()) events_->pairs.push_back(std::make_unique<Pair>());
  Pair& pair = *events_->pairs[events_->used];
  pair.name = fmt::format("{} {}", name, number);
  pair.ended = false;
  pair.begin.record(lane);
  return static_cast<int64_t>(events_->used++);
}

void LaneSpans::end(Lane& lane, int64_t index) {
  Pair& pair = *events_->pairs[static_cast<size_t>(index)];
  // Nothing is asked about work that an exception cut off.
  pair.ended = cudaEventRecord(pair.end.get(), stream_of(lane)) == cudaSuccess;
}

std::vector<LaneSpans::Span> LaneSpans::take() {
  on_ = false;
  std::vector<Span> spans;
  for (size_t i = 0; i < events_->used; ++i) {
    const Pair& pair = *events_->pairs[i];
    if (!pair.ended) continue;
    spans.push_back({pair.name, events_->zero_seconds + pair.begin.seconds_after(events_->zero),
                     events_->zero_seconds + pair.end.seconds_after(events_->zero)});
  }
  return spans;
}

#else  // a build without CUDA: no lane of a GPU

struct LaneSpans::Events {};
void LaneSpans::start(Lane&, const std::function<double()>&) {}
int64_t LaneSpans::begin(Lane&, const char*, int64_t) { return -1; }
void LaneSpans::end(Lane&, int64_t) {}
std::vector<LaneSpans::Span> LaneSpans::take() { return {}; }

#endif

LaneSpans::LaneSpans() = default;
LaneSpans::~LaneSpans() = default;

}  // namespace temper
