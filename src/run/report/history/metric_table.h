#pragma once
// metrics.jsonl as a table: a row per step, a column per key.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace temper {

struct MetricTable {
  std::vector<int64_t> steps;                          // ascending, each once
  std::map<std::string, std::vector<double>> columns;  // as many values as steps; NaN: no number there
  std::vector<int64_t> unreadable;                     // lines that are no metrics of a step
  int64_t values_left_out = 0;                         // of keys beyond kMaxColumns, the first that came

  /// Null: no step has this metric.
  const std::vector<double>* find(const std::string& key) const;
};

inline constexpr size_t kMaxColumns = 2000;
/// No run has as many steps: a line that says so is unreadable.
inline constexpr int64_t kMaxStep = 1'000'000'000'000;

/// The later line counts where a step is there twice. A last line without its end is one that is being
/// written: it is left out. No such file: a table without rows.
MetricTable read_metric_table(const std::string& path);

struct NamedTable {
  std::string name;
  const MetricTable* table = nullptr;
};
/// "step" and every key, floats with as many digits as give the same bits back, nothing where a step has no
/// number. Of several tables: a column "run" in front, and the keys of all. In names control characters are
/// written as \x1b, and one that a spreadsheet would take for a formula begins with an apostrophe.
std::string metrics_csv(const std::vector<NamedTable>& tables);

}  // namespace temper
