#include "src/run/report/history/metric_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/file_lines.h"
#include "src/core/text/printable.h"
#include "src/run/report/history/run_files.h"

namespace temper {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMaxCells = 100'000'000;

/// The step of a line of metrics; 0: it is none.
int64_t read_line(const std::string& text, Json& line) {
  try {
    line = parse_json(text, "metrics.jsonl");
  } catch (const Error&) {
    return 0;
  }
  const auto step = line.is_object() ? line.find("step") : line.end();
  if (!line.is_object() || step == line.end() || !step->is_number_integer()) return 0;
  const auto number = step->get<int64_t>();
  return number > 0 && number <= kMaxStep ? number : 0;
}

/// Rows in the order in which they come, and at last in that of their steps.
class Rows {
 public:
  explicit Rows(MetricTable& table) : table_(table) {}

  void add(int64_t step, const Json& line) {
    const auto [at, fresh] = row_of_.emplace(step, table_.steps.size());
    if (fresh) table_.steps.push_back(step);
    for (auto& [key, column] : table_.columns)
      if (!fresh && at->second < column.size()) column[at->second] = kNone;
    for (const auto& [key, value] : line.items())
      if (key != "step" && value.is_number()) set(key, at->second, value.get<double>());
  }

  void sort() {
    std::vector<size_t> order(table_.steps.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return table_.steps[a] < table_.steps[b]; });
    const auto sorted = [&](auto values, auto none) {
      values.resize(order.size(), none);
      auto result = values;
      for (size_t i = 0; i < order.size(); ++i) result[i] = values[order[i]];
      return result;
    };
    table_.steps = sorted(std::move(table_.steps), int64_t{0});
    for (auto& [key, column] : table_.columns) column = sorted(std::move(column), kNone);
  }

 private:
  void set(const std::string& key, size_t row, double value) {
    auto at = table_.columns.find(key);
    if (at == table_.columns.end()) {
      const size_t columns = table_.columns.size() + 1;
      if (columns > kMaxColumns || columns * table_.steps.size() > kMaxCells) {
        ++table_.values_left_out;
        return;
      }
      at = table_.columns.emplace(key, std::vector<double>()).first;
    }
    if (at->second.size() <= row) at->second.resize(row + 1, kNone);
    at->second[row] = value;
  }

  MetricTable& table_;
  std::unordered_map<int64_t, size_t> row_of_;
};

std::string csv_cell(const std::string& text) {
  std::string shown;
  for (const char c : printable(text)) shown += c == '\n' ? "\\x0a" : c == '\t' ? "\\x09" : std::string(1, c);
  if (!shown.empty() && std::string_view("=+-@").find(shown.front()) != std::string_view::npos)
    shown.insert(0, "'");
  if (shown.find_first_of(",\"") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) quoted += c == '"' ? "\"\"" : std::string(1, c);
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
  Rows rows(table);
  const bool whole = ends_a_line(path);
  int64_t last = 0;
  const LinesRead read = read_lines(path, {}, [&](const std::string& text, int64_t number) {
    Json line;
    last = number;
    const int64_t step = read_line(text, line);
    if (step == 0) return table.unreadable.push_back(number);
    rows.add(step, line);
  });
  if (!whole && !table.unreadable.empty() && table.unreadable.back() == last) table.unreadable.pop_back();
  table.unreadable.insert(table.unreadable.end(), read.too_long.begin(), read.too_long.end());
  std::sort(table.unreadable.begin(), table.unreadable.end());
  rows.sort();
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
