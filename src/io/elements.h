#pragma once
// Conversion of runs of elements between the float types of files (BF16, F16, F32, F64) and of storage.
// Values pass through fp32, or fp64 when either side is fp64; equal types are copied bit for bit.

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/dtype.h"

namespace temper {

/// Type of a safetensors dtype string, if it is a float type that weights may have.
std::optional<DType> float_dtype(const std::string& safetensors_name);
/// "BF16" and so on; only for float types.
const char* safetensors_name(DType type);
/// Name in config.json: "bfloat16" and so on; only for float types.
const char* torch_name(DType type);
std::optional<DType> parse_torch_name(const std::string& name);
/// "fp32", "bf16", "fp16", "fp64" (command line) -> type; anything else is Error(Exit::usage).
DType parse_dtype_option(const std::string& text);

/// Converts `count` elements (round to nearest even). Returns the index of the first result that is not
/// finite, or -1 when all are.
int64_t convert_elements(void* destination, DType to, const void* source, DType from, int64_t count);
/// Whether `bytes` of elements of a type, from a file or not aligned, are all finite; those of integers are.
bool all_finite(DType type, const char* elements, int64_t bytes);
double element_value(const void* data, DType type, int64_t index);

}  // namespace temper
