#pragma once
// A grid of ranks written by its axes: {.tp = 2, .pp = 2}.

#include "src/comm/grid.h"

namespace temper {

struct GridShape {
  int tp = 1, cp = 1, dp = 1, pp = 1;
  int ep = 0;  // as tp
  int ranks() const { return tp * cp * dp * pp; }
  operator Grid() const {
    return {{Axis::tp, tp}, {Axis::cp, cp}, {Axis::dp, dp}, {Axis::pp, pp}, {Axis::ep, ep}};
  }
};

}  // namespace temper
