#pragma once
// What of CUDA this program was built with, and what of it this machine has. Never fails.

#include <string>

namespace temper {

/// Opened at run time: the program starts where it is missing.
inline constexpr const char* kCublasLtFile = "libcublasLt.so.13";

/// "13.0", the CUDA toolkit of this build, or "not built in".
std::string cuda_version();

/// "580.159.03, for CUDA 13.0 and older", or "none found": the driver of the GPUs, in builds without CUDA
/// too ("580.159.03"). `root`: in front of /proc.
std::string gpu_driver_version(const std::string& root = "");

/// "13.1.0", or "none found".
std::string cublas_version();

}  // namespace temper
