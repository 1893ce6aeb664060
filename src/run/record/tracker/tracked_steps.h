#pragma once
// What a tracker gets of a run, read from the run folder: so nothing is kept in memory for a tracker that is
// behind, and one that lacks old steps gets them like new ones.

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/json.h"

namespace temper {

class TrackedSteps {
 public:
  explicit TrackedSteps(std::string folder) : folder_(std::move(folder)) {}

  /// Samples of a step that are passed on, evenly spaced, and bytes of each of their texts.
  static constexpr size_t kMostSamples = 64, kMostText = size_t{8} << 10;

  struct Step {
    int64_t step = 0;
    std::string lines;  // for the tracker, each with its end: samples, then metrics
  };
  /// The first step after `last` that has a line of metrics; nothing where there is none yet. Lines that
  /// cannot be read are passed over.
  std::optional<Step> next(int64_t last);
  /// From the first line on again.
  void rewind();

 private:
  bool read_more();
  std::optional<std::string> next_line();
  std::string sample_lines(int64_t step) const;

  std::string folder_, rest_;  // what is read and not looked at
  int64_t offset_ = 0;
};

}  // namespace temper
