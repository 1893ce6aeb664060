#pragma once
// beta and g of rows, by whichever kernel makes them.

#include "kernels/cuda/hybrid/teams.h"
#include "kernels/delta_types.h"

namespace temper::cuda {

struct GateRows {
  int tokens, heads;
  int64_t row, column;  // of x, and where b begins in it
};
inline GateRows gate_rows_of(const CTensor& x, const DeltaShape& shape) {
  heads_of_all(x.dim(0), shape.value_heads);
  return {static_cast<int>(x.dim(0)), static_cast<int>(shape.value_heads), x.dim(1), shape.gates_column()};
}

template <class S>
struct DeltaGates {
  float *beta, *g;
  const S* x;
  const float* a_log;
  const S* dt_bias;
  GateRows rows;

  /// The gates of one head of one row.
  TEMPER_DEVICE void make(int item) const {
    const int token = item / rows.heads, head = item - token * rows.heads;
    if (token >= rows.tokens) return;
    const S* gates = x + token * rows.row + rows.column;
    const float sum = __fadd_rn(canonical::load(gates[rows.heads + head]), canonical::load(dt_bias[head]));
    beta[item] = canonical::sigmoid(canonical::load(gates[head]));
    g[item] = canonical::decay_gate(a_log[head], sum);
  }
};
template <class S>
DeltaGates<S> delta_gates_of(const Tensor& beta, const Tensor& g, const CTensor& x, const CTensor& a_log,
                             const CTensor& dt_bias, const DeltaShape& shape) {
  return {beta.as<float>(),  g.as<float>(),       data_of<S>(x),
          a_log.as<float>(), data_of<S>(dt_bias), gate_rows_of(x, shape)};
}

}  // namespace temper::cuda
