#pragma once
// What the validations of a run have shown so far: the steps at which the metric of checkpoint.best was best,
// and whether run.stop_when is met. Trainer ranks know the same, and each checkpoint holds it. Step 0 does
// not count: there is no checkpoint of it.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/config/config.h"

namespace temper {

class Standings {
 public:
  explicit Standings(const Config& config);

  /// Takes up what `text` of another instance says, as far as it is of the same metrics. Exit::data at
  /// `where`.
  void restore(const std::string& text, const std::string& where);
  std::string text() const;

  struct Best {
    int64_t step = 0;
    double value = 0;
  };
  /// What a validation changed.
  struct News {
    std::optional<double> best = {};        // the step is one of the best, with this value
    std::optional<int64_t> displaced = {};  // this step no longer is
  };
  /// The metrics of a step; those without what is looked for, as no validation was made, change nothing.
  News look(int64_t step, const std::map<std::string, double>& metrics);

  /// The best first; of equal values the earliest. At most checkpoint.best.keep.
  const std::vector<Best>& best() const { return best_; }
  bool is_best(int64_t step) const;
  /// run.stop_when is met: the run ends.
  bool reached() const { return !stop_.metric.empty() && in_row_ >= stop_.times; }
  std::string reason() const;

 private:
  bool better(double a, double b) const { return smallest_ ? a < b : a > b; }

  BestConfig config_;
  StopWhen stop_;
  bool smallest_ = false;
  std::vector<Best> best_;
  int64_t in_row_ = 0;  // validations that were good enough
};

}  // namespace temper
