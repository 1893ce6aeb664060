#include "src/run/verbs/bits/products_cost.h"

#include <map>

#include "src/core/text/short_number.h"
#include "src/models/parameter_specs.h"

namespace temper {
namespace {

/// Weights of layers by their names there; those of layers of another kind that have the same shape count
/// once.
std::map<std::string, std::vector<int64_t>> weights_of(const ModelConfig& shape) {
  std::map<std::string, std::vector<int64_t>> all;
  for (const ParamSpec& spec : parameter_specs(shape)) {
    if (!spec.name.starts_with("layers.") || spec.shape.size() != 2) continue;
    const std::string name = spec.name.substr(spec.name.find('.', std::string_view("layers.").size()) + 1);
    if (!name.starts_with("moe.")) all[name] = spec.shape;
  }
  return all;
}

struct Sums {
  ProductTime training, decoding;
};
Sums sums_of(const ProductsCost& cost) {
  Sums sums;
  const auto add = [](ProductTime& sum, const ProductTime& time) {
    sum.ours += time.ours;
    sum.fastest += time.fastest;
  };
  for (const WeightCost& w : cost) {
    for (const ProductTime& time :
         {w.training.forward, w.training.input_gradient, w.training.weight_gradient})
      add(sums.training, time);
    add(sums.decoding, w.decoding);
  }
  return sums;
}

double ratio(const ProductTime& time) { return time.ours / time.fastest; }

}  // namespace

std::optional<ProductsCost> products_cost(Ctx& ctx, const ModelConfig& shape) {
  ProductsCost cost;
  for (const auto& [name, size] : weights_of(shape)) {
    const std::optional<LinearTimes> training = time_linear(ctx, kTrainedTokens, size[0], size[1]),
                                     decoding = time_linear(ctx, kDecodedRows, size[0], size[1]);
    if (!training || !decoding) return std::nullopt;
    cost.push_back({name, size[0], size[1], *training, decoding->forward});
  }
  return cost;
}

Json cost_json(const std::optional<ProductsCost>& cost) {
  if (!cost) return nullptr;
  Json products = Json::array();
  for (const WeightCost& w : *cost) {
    const auto add = [&](const char* product, int64_t tokens, const ProductTime& time) {
      products.push_back({{"weight", w.weight},
                          {"outputs", w.outputs},
                          {"inputs", w.inputs},
                          {"product", product},
                          {"tokens", tokens},
                          {"seconds", time.ours},
                          {"fastest_seconds", time.fastest}});
    };
    add("forward", kTrainedTokens, w.training.forward);
    add("input_gradient", kTrainedTokens, w.training.input_gradient);
    add("weight_gradient", kTrainedTokens, w.training.weight_gradient);
    add("forward", kDecodedRows, w.decoding);
  }
  const Sums sums = sums_of(*cost);
  return {{"products", products}, {"training", ratio(sums.training)}, {"decoding", ratio(sums.decoding)}};
}

std::string cost_text(const std::optional<ProductsCost>& cost) {
  if (!cost) return "";
  const Sums sums = sums_of(*cost);
  return fmt::format(
      "cost: products of a layer in bf16 take {:.2f} times as long as the fastest of cuBLASLt in training "
      "({} "
      "tokens), "
      "{:.2f} times in decoding ({} sequences)\n",
      ratio(sums.training), grouped_number(kTrainedTokens), ratio(sums.decoding), kDecodedRows);
}

}  // namespace temper
