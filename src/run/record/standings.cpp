#include "src/run/record/standings.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/core/json.h"

namespace temper {
namespace {

bool is_loss(const std::string& metric) { return metric.ends_with("/loss") || metric.ends_with("/ppl"); }

}  // namespace

Standings::Standings(const Config& config)
    : config_(config.checkpoint.best),
      stop_(config.run.stop_when),
      smallest_(config_.mode == "min" || (config_.mode == "auto" && is_loss(config_.metric))) {}

void Standings::restore(const std::string& text, const std::string& where) {
  const Json all = parse_json(text, where);
  try {
    const Json &best = all.at("best"), &stop = all.at("stop");
    if (best.at("metric") == config_.metric && best.at("smallest") == smallest_)
      for (const Json& one : best.at("steps"))
        if (std::ssize(best_) < config_.keep)
          best_.push_back({one.at(0).get<int64_t>(), one.at(1).get<double>()});
    if (stop.at("metric") == stop_.metric && stop_.at_least && stop.at("at_least") == *stop_.at_least)
      in_row_ = stop.at("in_row").get<int64_t>();
  } catch (const Json::exception& e) {
    fail(Exit::data, {.what = "what a checkpoint says of validations cannot be read",
                      .where = where,
                      .why = e.what(),
                      .fix = "use another checkpoint"});
  }
}

std::string Standings::text() const {
  Json steps = Json::array();
  for (const Best& one : best_) steps.push_back({one.step, one.value});
  return dump_json_line({{"best", {{"metric", config_.metric}, {"smallest", smallest_}, {"steps", steps}}},
                         {"stop",
                          {{"metric", stop_.metric},
                           {"at_least", stop_.at_least ? Json(*stop_.at_least) : Json()},
                           {"in_row", in_row_}}}});
}

Standings::News Standings::look(int64_t step, const std::map<std::string, double>& metrics) {
  News news;
  if (step == 0) return news;
  if (const auto at = metrics.find(stop_.metric); at != metrics.end() && !stop_.metric.empty())
    in_row_ = at->second >= *stop_.at_least ? in_row_ + 1 : 0;
  const auto at = metrics.find(config_.metric);
  if (config_.metric.empty() || at == metrics.end() || !std::isfinite(at->second)) return news;
  const double value = at->second;
  const auto place =
      std::find_if(best_.begin(), best_.end(), [&](const Best& other) { return better(value, other.value); });
  if (place == best_.end() && std::ssize(best_) >= config_.keep) return news;
  best_.insert(place, {step, value});
  news.best = value;
  if (std::ssize(best_) <= config_.keep) return news;
  news.displaced = best_.back().step;
  best_.pop_back();
  return news;
}

bool Standings::is_best(int64_t step) const {
  return std::any_of(best_.begin(), best_.end(), [&](const Best& one) { return one.step == step; });
}

std::string Standings::reason() const {
  return fmt::format("run.stop_when: {} is at least {}{}", stop_.metric, stop_.at_least.value_or(0),
                     stop_.times > 1 ? fmt::format(", {} times in a row", stop_.times) : "");
}

}  // namespace temper
