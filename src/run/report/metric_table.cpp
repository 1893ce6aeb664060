#include "src/run/report/metric_table.h"

#include <cmath>
#include <limits>
#include <set>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/file_lines.h"

namespace temper {
namespace {

constexpr int64_t kMaxLine = int64_t{16} << 20;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// The step of a line of metrics; 0: it is none.
int64_t read_line(const std::string& text, Json& line) {
  try {
    line = parse_json(text, "metrics.jsonl");
  } catch (const Error&) {
    return 0;
  }
  const auto step = line.is_object() ? line.find("step") : line.end();
  const bool legal = line.is_object() && step != line.end() && step->is_number_integer();
  return legal ? std::max<int64_t>(0, step->get<int64_t>()) : 0;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

const std::vector<double>* MetricTable::find(const std::string& key) const {
  const auto at = columns.find(key);
  return at == columns.end() ? nullptr : &at->second;
}

MetricTable read_metric_table(const std::string& path) {
  MetricTable table;
  if (!path_exists(path)) return table;
  std::map<int64_t, std::map<std::string, double>> rows;
  const bool whole = ends_a_line(path);
  int64_t last = 0;
  for_each_line(path, kMaxLine, [&](const std::string& text, int64_t number) {
    Json line;
    last = number;
    const int64_t step = read_line(text, line);
    if (step == 0) return table.unreadable.push_back(number);
    std::map<std::string, double>& row = rows[step];
    row.clear();
    for (const auto& [key, value] : line.items())
      if (key != "step" && value.is_number()) row[key] = value.get<double>();
  });
  if (!whole && !table.unreadable.empty() && table.unreadable.back() == last) table.unreadable.pop_back();
  for (const auto& [step, row] : rows) {
    for (const auto& [key, value] : row) {
      std::vector<double>& column = table.columns[key];
      column.resize(table.steps.size(), kNone);
      column.push_back(value);
    }
    table.steps.push_back(step);
  }
  for (auto& [key, column] : table.columns) column.resize(table.steps.size(), kNone);
  return table;
}

std::string metrics_csv(const std::vector<NamedTable>& tables) {
  std::set<std::string> keys;
  for (const NamedTable& run : tables)
    for (const auto& [key, column] : run.table->columns) keys.insert(key);
  const bool several = tables.size() > 1;
  std::string text = several ? "run,step" : "step";
  for (const std::string& key : keys) text += "," + csv_cell(key);
  text += "\n";
  for (const NamedTable& run : tables) {
    for (size_t row = 0; row < run.table->steps.size(); ++row) {
      if (several) text += csv_cell(run.name) + ",";
      text += std::to_string(run.table->steps[row]);
      for (const std::string& key : keys) {
        const std::vector<double>* column = run.table->find(key);
        text += ',';
        if (column && std::isfinite((*column)[row])) text += dump_json_line((*column)[row]);
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace temper
