#pragma once
// The keys of a config that make a part of what a rank holds smaller.

#include "src/core/process/memory_error.h"

namespace temper {

/// What to change where there is no memory for such a part.
const char* memory_advice(MemoryUse use);

}  // namespace temper
