#pragma once
// Adapters of every linear layer of a dense decoder.

#include "src/nn/adapter_config.h"

namespace temper {

inline AdapterConfig adapters_of_all(int64_t rank) {
  return {.rank = rank,
          .alpha = 2 * static_cast<double>(rank),
          .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}};
}

}  // namespace temper
