#pragma once
// What a rendering may cost: templates come with models and are not trusted.

#include <cstdint>

namespace temper {

struct TemplateLimits {
  int64_t steps = 5'000'000;                  // evaluated nodes, plus one per 128 bytes of text handled
  int depth = 100;                            // macro calls inside each other
  int64_t output_bytes = int64_t{16} << 20;   // rendered text, also of one macro call or block
  int64_t memory_bytes = int64_t{256} << 20;  // values made while rendering
};

}  // namespace temper
