#include "src/train/routers/router_record.h"

#include <algorithm>

namespace temper {

RouterRecord::RouterRecord(const ModelConfig& config, DType storage, Device device,
                           const RouteOptions& routes)
    : moe_(config.moe), memory_(device) {
  if (!moe_.layers.empty())
    sums_ = memory_.make({config.num_layers, moe_.num_experts + 1}, accumulate_dtype(storage));
  if (routes.shape.layers > 0) others_ = memory_.make({1}, DType::i32);
}

void RouterRecord::clear(Lane& lane) {
  for (const Tensor& t : {sums_, others_})
    if (!t.empty()) device::fill(lane, t.raw(), 0, t.bytes());
}

void RouterRecord::add_metrics(const Ctx& c, Comm& all, Metrics& metrics) const {
  if (sums_.empty() || counts_only(c.device)) return;
  std::vector<double> sums = to_host<double>(c, sums_);
  if (!others_.empty()) sums.push_back(to_host<int32_t>(c, others_).front());
  all.all_reduce_sum(sums, "rows of experts and entropies of routers, sum over trainer ranks");
  if (!others_.empty()) metrics["moe/routing_mismatch"] = sums.back();
  const auto experts = static_cast<double>(moe_.num_experts),
             chosen = static_cast<double>(moe_.experts_per_token);
  double most = 0, least = experts, idle = 0, entropy = 0, tokens = 0;
  for (const int64_t layer : moe_.layers) {
    const auto begin = sums.begin() + layer * (moe_.num_experts + 1), end = begin + moe_.num_experts;
    double rows = 0;
    for (auto at = begin; at != end; ++at) rows += *at;
    if (rows == 0) continue;
    most = std::max(most, *std::max_element(begin, end) * experts / rows);
    least = std::min(least, *std::min_element(begin, end) * experts / rows);
    idle += static_cast<double>(std::count(begin, end, 0.0));
    entropy += *end;
    tokens += rows / chosen;
  }
  if (tokens == 0) return;
  metrics["moe/load_max"] = most;
  metrics["moe/load_min"] = least;
  metrics["moe/experts_idle"] = idle;
  metrics["moe/entropy"] = entropy / tokens;
}

}  // namespace temper
