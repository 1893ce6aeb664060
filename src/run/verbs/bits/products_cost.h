#pragma once
// What the same bits cost on a GPU: the products of a model's layers beside the fastest of cuBLASLt.

#include <optional>
#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/nn/model_config.h"
#include "src/ops/product_times.h"

namespace temper {

inline constexpr int64_t kTrainedTokens = 8192, kDecodedRows = 64;

/// A weight of a layer, whole, without those of single experts.
struct WeightCost {
  std::string weight;  // "attn.wqkv"
  int64_t outputs = 0, inputs = 0;
  LinearTimes training;  // of kTrainedTokens
  ProductTime decoding;  // of kDecodedRows
};
using ProductsCost = std::vector<WeightCost>;

/// In bf16. Nothing on a CPU. Takes some seconds for a model of 8B.
std::optional<ProductsCost> products_cost(Ctx& ctx, const ModelConfig& shape);

/// null without one; else the products, and how many times as long as the fastest they take together.
Json cost_json(const std::optional<ProductsCost>& cost);
/// A line; empty without one.
std::string cost_text(const std::optional<ProductsCost>& cost);

}  // namespace temper
