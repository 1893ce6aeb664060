#pragma once
// What a lane knows of self-tests of kernels.

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/tested_shapes.h"

namespace temper::cuda {

/// The libraries of every lane (open_libraries).
class TestedLibraries : public Libraries {
 public:
  using Libraries::Libraries;

  /// Attention over pages: query heads, kv heads, their size, rows of a tensor copy.
  TestedShapes<std::tuple<int, int, int, int>> attention_heads;
  /// Heads of gated delta nets: value heads, and how many of them a key head has.
  TestedShapes<std::pair<int, int>> delta_heads;
};

inline TestedLibraries& tested_libraries_of(const Ctx& ctx) {
  return static_cast<TestedLibraries&>(*ctx.lane.libraries());
}

}  // namespace temper::cuda
