#pragma once
// Dispatch of the ops that hybrid models have beside those of all, as in src/ops/dispatch.h.

#include "kernels/cpu/hybrid.h"
#include "kernels/planned/hybrid.h"
#include "src/ops/dispatch.h"

#ifdef TEMPER_CUDA
#include "kernels/cuda/hybrid/hybrid.h"
#endif
