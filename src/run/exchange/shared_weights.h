#pragma once
// The whole parameters of a model, or their gradients, that ranks share, for one of them that writes them:
// the first one asks for elements, all send what they have of them. Nobody holds more than a few MiB of them
// for it.

#include <functional>

#include "src/comm/comm.h"
#include "src/io/hf/hf_export.h"
#include "src/nn/parallel/row_moves.h"

namespace temper {

/// Ranks that have one whole model together.
struct SharedModel {
  Comm& ranks;
  Holders holders;  // these
};

/// On rank 0 `use` gets a reader of the whole parameters, or of their gradients: of what `held` gives, which
/// is what this rank has of one. The other ranks serve it until `use` is done. All ranks of the model call
/// it; no lane has work on them.
using HeldPart = std::function<CTensor(const Parameter&)>;
void read_shared(const SharedModel& model, const ParameterStore& own, const HeldPart& held,
                 const std::function<void(const ElementReader&)>& use);

}  // namespace temper
