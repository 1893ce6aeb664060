#pragma once
// The `[lora]` section: low-rank adapters that are trained in the place of the model's own weights.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temper {

struct LoraConfig {
  int64_t rank = 0;                  // 0: that of `path`; without a path there are no adapters
  std::optional<double> alpha;       // absent: that of `path`, else twice the rank
  std::vector<std::string> targets;  // empty: those of `path`, else all linear layers
  std::optional<bool> rslora;        // absent: that of `path`, else false
  std::string path;                  // a PEFT folder: the adapters to begin with; empty: fresh ones

  bool on() const { return rank > 0 || !path.empty(); }
};

}  // namespace temper
