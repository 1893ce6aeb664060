#pragma once
// Which ids a sequence holds, and how often its response holds each: what penalties look at.

#include <cstdint>
#include <vector>

namespace temper {

struct TokenCount {
  int32_t id = 0;
  int32_t in_response = 0;  // 0: in the prompt alone
};

/// Distinct ids, ascending.
using TokenCounts = std::vector<TokenCount>;

}  // namespace temper
