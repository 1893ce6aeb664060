#pragma once
// Names of the parts that reward programs report: a program may make new ones without end, and each is a
// column of the metrics, a curve, a tag of the event files.

#include <map>
#include <set>
#include <string>

namespace temper {

inline constexpr size_t kMaxPartNamesOfARun = 128;

class PartNames {
 public:
  PartNames() = default;
  /// A run that goes on has the names that its metrics have: one that is resumed keeps those that it would
  /// have kept.
  explicit PartNames(const std::string& metrics_file);

  /// Takes `reward/NAME/mean` of names beyond the first kMaxPartNamesOfARun of the run out of the metrics of
  /// a step, and counts them in `reward/parts_left_out`. Returns a warning, once.
  std::string limit(std::map<std::string, double>& metrics);

 private:
  std::set<std::string> known_;
  bool told_ = false;
};

}  // namespace temper
