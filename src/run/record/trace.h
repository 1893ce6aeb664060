#pragma once
// What each rank did when, for the steps of `profile.steps`: spans on one track per role, one for what its
// GPU or CPU computes (prefill, decode, micro-batches) and one per thread that scores responses; arrows for
// weights and batches, in the Chrome trace event format (open trace/step-000003.json in Perfetto).
// Times count from a barrier of all ranks at the start of the run: the clocks of a host are one, those of
// several hosts agree to the time of a barrier.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/core/device.h"
#include "src/core/json.h"
#include "src/core/lane_spans.h"

namespace temper {

class Trace {
 public:
  enum class Arrow { begins, ends };

  /// Records the steps of `steps` (ascending); none: every call returns at once.
  Trace(int rank, std::vector<int> steps) : rank_(rank), steps_(std::move(steps)) {}
  /// Time 0: all ranks of `world` call it.
  void start(Comm& world);

  int rank() const { return rank_; }
  bool on(int64_t step) const;
  double now() const;
  /// Something that lasted from `begin` (a value of `now`) until now.
  void span(int64_t step, const char* track, const std::string& name, double begin);
  /// What ran beside the roles while this rank was at `step`; the times are values of `now`.
  void spans(int64_t step, const std::string& track, const std::vector<LaneSpans::Span>& spans);
  /// A time of the host's clock as a value of `now`.
  double at(std::chrono::steady_clock::time_point time) const;
  /// One end of an arrow, now; both ends name it alike ("weights 3 to rank 1"). It hangs on the span of the
  /// same step and track that is under way.
  void arrow(int64_t step, const char* track, const std::string& name, Arrow end);

  /// All ranks call it; the first rank of `world` that passes a folder writes one file per step into it, and
  /// one of all steps together: what runs beside each other belongs to different steps.
  void write(Comm& world, const std::string& folder);

 private:
  void add(int64_t step, const std::string& track, const std::string& category, Json event);
  void add_span(int64_t step, const std::string& track, const LaneSpans::Span& span);

  int rank_;
  std::vector<int> steps_;
  int64_t origin_ = 0;  // nanoseconds
  std::map<int64_t, std::vector<Json>> events_;
};

/// Tracks that are no role's.
const char* device_track(Device device);
std::string reward_track(int thread);  // from 0 on

/// Names of arrows, alike at both ends.
std::string weights_arrow(int64_t version, int to);
std::string groups_arrow(int64_t step, int from);

/// A span for the life of the object.
class TraceSpan {
 public:
  TraceSpan(Trace& trace, int64_t step, const char* track, std::string name)
      : trace_(trace), step_(step), track_(track), name_(std::move(name)), begin_(trace.now()) {}
  ~TraceSpan() { trace_.span(step_, track_, name_, begin_); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace& trace_;
  int64_t step_;
  const char* track_;
  std::string name_;
  double begin_;
};

}  // namespace temper
