#pragma once
// Names that programs and data bring into the metrics: the parts that reward programs report, the domains of
// data.domain_key. Both may make new ones without end, and each is a column of the metrics, a curve, a tag of
// the event files.

#include <map>
#include <set>
#include <string>

namespace temper {

inline constexpr size_t kMaxPartNamesOfARun = 128, kMaxDomainsOfARun = 128;

class PartNames {
 public:
  PartNames() = default;
  /// A run that goes on has the names that its metrics have: one that is resumed keeps those that it would
  /// have kept.
  explicit PartNames(const std::string& metrics_file);

  /// Takes `reward/NAME/mean` of names beyond the first kMaxPartNamesOfARun of the run out of the metrics of
  /// a step, and counts them in `reward/parts_left_out`; all of domains beyond the first kMaxDomainsOfARun,
  /// counted in `domain/left_out`. Returns a warning of each, once.
  std::string limit(std::map<std::string, double>& metrics);

 private:
  std::string limit_parts(std::map<std::string, double>& metrics);
  std::string limit_domains(std::map<std::string, double>& metrics);

  std::set<std::string> parts_, domains_;  // reward/NAME/mean; domain/NAME/
  bool told_of_parts_ = false, told_of_domains_ = false;
};

}  // namespace temper
