#pragma once
#include <string>

namespace temper {

/// "13.0", the CUDA toolkit of this build, or "not built in".
std::string cuda_version();

}  // namespace temper
