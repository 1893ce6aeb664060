#pragma once
// Sessions that their programs play to the end, and that nothing gives a reward.

#include <cstdint>
#include <map>
#include <string>

namespace temper {

class NoReward {
 public:
  /// Looks at the metrics of a step. Returns the warning, once: in the first step that has such a session.
  std::string look(int64_t step, const std::map<std::string, double>& metrics);

 private:
  bool told_ = false;
};

}  // namespace temper
