#pragma once
// From when to when pieces of work ran on a lane, in the host's time. On a GPU events stand between the work,
// which are asked for their times when it has ended: nobody waits for a span.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace temper {

class Lane;

class LaneSpans {
 public:
  struct Span {
    std::string name;
    double begin = 0, end = 0;  // seconds of the host's clock
  };
  LaneSpans();
  ~LaneSpans();
  LaneSpans(const LaneSpans&) = delete;
  LaneSpans& operator=(const LaneSpans&) = delete;

  /// From here on, without what there was: waits for the lane once, to read the host's clock `now` with it.
  void start(Lane& lane, const std::function<double()>& now);
  bool on() const { return on_; }
  /// What LaneSpan calls (core/lane.h).
  int64_t begin(Lane& lane, const char* name, int64_t number);
  void end(Lane& lane, int64_t index);
  /// All that have ended, in order of their begin; off again. The lane's work has ended.
  std::vector<Span> take();

 private:
  struct Events;
  bool on_ = false;
  std::unique_ptr<Events> events_;  // kept for the next start
};

}  // namespace temper
