#include "src/run/report/scores.h"

#include <algorithm>

#include "src/run/report/mean_curve.h"

namespace temper {
namespace {

constexpr size_t kMeans = 2000;  // the best is looked for among so many

/// Nothing where no step has a value. Validation is a mean over a whole set already.
void add_score(const MetricTable& table, const std::string& key, bool higher, std::vector<Score>& scores) {
  const std::vector<double>* column = table.find(key);
  if (!column) return;
  std::vector<CurvePoint> points;
  for (const auto& piece : curve_of(table.steps, *column))
    points.insert(points.end(), piece.begin(), piece.end());
  if (points.empty()) return;
  Score score{key, higher, key.starts_with("val/") ? 1 : mean_window(points.size()), {}, {}, {}};
  const auto side = static_cast<size_t>(score.window / 2);
  const auto at = [&](size_t i) {
    return Score::At{neighbour_mean(points, i, score.window), static_cast<int64_t>(points[i].step)};
  };
  score.first = score.best = at(side);
  score.last = at(points.size() - 1 - side);
  const size_t distance = score.window == 1 ? 1 : 1 + points.size() / kMeans;
  for (size_t i = side; i + side < points.size(); i += distance)
    if (const Score::At here = at(i); higher ? here.value > score.best.value : here.value < score.best.value)
      score.best = here;
  scores.push_back(score);
}

}  // namespace

std::vector<Score> scores_of(const MetricTable& table) {
  constexpr std::string_view kMean = "/score/mean", kLoss = "/loss";
  std::vector<Score> scores;
  for (const auto& [key, column] : table.columns)
    if (key.starts_with("val/") && key.ends_with(kMean)) add_score(table, key, true, scores);
  for (const auto& [key, column] : table.columns)
    if (key.starts_with("val/") && key.ends_with(kLoss) &&
        !table.find(key.substr(0, key.size() - kLoss.size()) + std::string(kMean)))
      add_score(table, key, false, scores);
  const size_t validations = scores.size();
  add_score(table, "critic/score/mean", true, scores);
  if (scores.size() == validations) add_score(table, "train/loss", false, scores);
  return scores;
}

}  // namespace temper
