#pragma once
// Steps that teach nothing: all samples of each prompt earn the same, or the gradient is zero.

#include <cstdint>
#include <map>
#include <string>

namespace temper {

class NoSignal {
 public:
  /// Looks at the metrics of a step. Returns the warning, once: when five steps in a row had none.
  std::string look(int64_t step, const std::map<std::string, double>& metrics);

 private:
  int64_t alike_ = 0, still_ = 0;  // steps in a row: without differing rewards; with a gradient of zero
  bool told_ = false;
};

}  // namespace temper
