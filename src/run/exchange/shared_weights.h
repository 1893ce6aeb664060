#pragma once
// The whole parameters of a model, or their gradients, that tensor parallel ranks share, for one of them that
// writes them: rank 0 of `tp` asks for elements, all ranks send what they have of them. Nobody holds more
// than a few MiB of them for it.

#include <functional>

#include "src/comm/comm.h"
#include "src/io/hf_export.h"
#include "src/nn/parameter.h"

namespace temper {

/// On rank 0 `use` gets a reader of the whole parameters (`of` = &Parameter::value) or gradients
/// (&Parameter::grad); the other ranks serve it until `use` is done. All ranks of `tp` call it; no lane has
/// work on them.
void read_shared(Comm& tp, const ParameterStore& own, Tensor Parameter::*of,
                 const std::function<void(const ElementReader&)>& use);

}  // namespace temper
