#pragma once
// Rows to sample with every option, for tests of what draws tokens.

#include <limits>
#include <random>
#include <vector>

#include "kernels/types.h"

namespace temper {

/// Some rows of each kind, of different responses and positions.
inline std::vector<SampleRow> mixed_rows(int64_t n) {
  std::vector<SampleRow> rows;
  const SampleOptions kinds[] = {{},
                                 {.temperature = 0.7},
                                 {.temperature = 0},
                                 {.temperature = 1.3, .top_k = 20},
                                 {.temperature = 0.7, .top_p = 0.9},
                                 {.min_p = 0.02},
                                 {.temperature = 0.6, .top_k = 50, .top_p = 0.95, .min_p = 0.01},
                                 {.temperature = 0, .top_k = 5}};
  for (int64_t r = 0; r < n; ++r)
    rows.push_back(
        {{7, 1000 + r / 4, static_cast<int32_t>(r % 4)}, static_cast<uint32_t>(3 * r), kinds[r % 8]});
  return rows;
}

inline constexpr double kNever = -std::numeric_limits<double>::infinity();

/// The rows of mixed_rows, each with penalties of its own and edits of about 1,000 ids all over the
/// vocabulary.
struct EditedRows {
  std::vector<std::vector<LogitEdit>> edits;
  std::vector<SampleRow> rows;

  EditedRows(int64_t n, int64_t V) : rows(mixed_rows(n)) {
    std::mt19937 random(77);
    const SampleOptions kinds[] = {
        {.repetition_penalty = 1.3},
        {.frequency_penalty = 0.4},
        {.presence_penalty = 0.7},
        {},
        {.repetition_penalty = 0.8, .frequency_penalty = -0.2, .presence_penalty = -0.5}};
    edits.resize(static_cast<size_t>(n));
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int32_t id = static_cast<int32_t>(random() % 30); id < V;
           id += 1 + static_cast<int32_t>(random() % 8)) {
        const auto count = static_cast<int32_t>(random() % 4);
        const double bias = random() % 5 == 0 ? kNever : static_cast<double>(random() % 7) - 3.0;
        edits[r].push_back({id, count, count > 0 || random() % 2 == 0, random() % 2 == 0 ? bias : 0.0});
      }
      SampleOptions& o = rows[r].options;
      o.repetition_penalty = kinds[r % 5].repetition_penalty;
      o.frequency_penalty = kinds[r % 5].frequency_penalty;
      o.presence_penalty = kinds[r % 5].presence_penalty;
      rows[r].edits = edits[r];
    }
  }
};

}  // namespace temper
