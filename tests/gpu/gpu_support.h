#pragma once
// What the tests of models on the GPU share: models filled fast.

#include "src/models/model.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"
#include "tests/support/normal_block.h"

namespace temper {

/// Matrices and biases of `scale` (embedding and head of `head_scale`), norms about 1.
inline void fill_parameters(ParameterStore& store, double scale, double head_scale) {
  const NormalBlock block;
  int64_t index = 0;
  for (Parameter& p : store.list()) {
    const bool norm = p.spec.init == Init::ones, head = p.spec.name == "embed" || p.spec.name == "head";
    block.fill(store.device(), p.value, norm ? 0.1 : head ? head_scale : scale, norm ? 1.0 : 0.0, index++);
  }
}

}  // namespace temper
