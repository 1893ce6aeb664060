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

  /// Null: no step has this metric.
  const std::vector<double>* find(const std::string& key) const;
};

/// The later line counts where a step is there twice. A last line without its end is one that is being
/// written: it is left out. No such file: a table without rows.
MetricTable read_metric_table(const std::string& path);

struct NamedTable {
  std::string name;
  const MetricTable* table = nullptr;
};
/// "step" and every key, floats with as many digits as give the same bits back, nothing where a step has no
/// number. Of several tables: a column "run" in front, and the keys of all.
std::string metrics_csv(const std::vector<NamedTable>& tables);

}  // namespace temper
