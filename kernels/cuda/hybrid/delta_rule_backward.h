#pragma once
// The parts of delta_rule_backward that are files of their own.

#include "kernels/cuda/hybrid/delta_backward.cuh"

namespace temper::cuda::delta_backward {

/// Numbers of chunks of the parallel kernels.
template <class E>
int chunk_numbers(const Call<E>& c) {
  return c.T / C + c.S;
}

/// dq, dk, dbeta and dg of all rows, from states, dstates, pairs, rates and y.
void row_gradients(Ctx& ctx, const Call<bf>& call);

/// All of it for fp32.
void plain_backward(Ctx& ctx, const Call<float>& call);

}  // namespace temper::cuda::delta_backward
