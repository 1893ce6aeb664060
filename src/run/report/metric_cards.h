#pragma once
// Which metrics of some runs are worth a chart: those that change, each curve once.

#include <string>
#include <vector>

#include "src/run/report/chart_groups.h"
#include "src/run/report/history/run_history.h"

namespace temper {

struct MetricCard {
  ChartMetric metric;
  std::vector<std::string> equal;  // keys with the same values in every step of every run
};
struct CardGroup {
  std::string title;
  std::vector<MetricCard> cards;
  std::vector<std::string> constant;  // keys whose values never change within a run
};
struct MetricCards {
  std::vector<CardGroup> groups;
  std::vector<std::string> left_out;  // beyond kMaxCards
  size_t drawn = 0;
};
inline constexpr size_t kMaxCards = 120;

MetricCards metric_cards(const std::vector<RunHistory>& runs);

}  // namespace temper
