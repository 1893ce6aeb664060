#pragma once
// Element types and their exact conversions. bf16 and fp16 are storage: arithmetic on them happens in fp32.

#include <bit>
#include <cstdint>
#include <cstring>

#include "src/core/check.h"

namespace temper {

enum class DType : uint8_t { f32, bf16, f16, f64, i32, u16 };

inline int64_t dtype_size(DType t) {
  switch (t) {
    case DType::f64:
      return 8;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    default:
      return 4;
  }
}

inline const char* dtype_name(DType t) {
  switch (t) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::f64:
      return "fp64";
    case DType::i32:
      return "i32";
    case DType::u16:
      return "u16";
  }
  return "?";
}

/// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t bf16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float x) : bits(bf16_bits(x)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(bf16) == 2);

/// An fp32 master in two halves that together give it back, bit for bit: the nearest bf16, ties away from
/// zero (to even would leave two masters with the same halves), and its low 16 bits.
inline uint16_t master_weight(float master) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(master) + 0x8000u) >> 16);
}
inline uint16_t master_remainder(float master) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(master));
}
inline float joined_master(uint16_t weight, uint16_t remainder) {
  const auto low = static_cast<int32_t>(static_cast<int16_t>(remainder));
  return std::bit_cast<float>((static_cast<uint32_t>(weight) << 16) + static_cast<uint32_t>(low));
}

inline float fp16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-24f
                                        : std::bit_cast<float>(((exponent + 112) << 23) | (mantissa << 13));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

/// Round to nearest, ties to even; overflow gives infinity.
inline uint16_t float_to_fp16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65536 or more
  if (a < 0x38800000u) {                        // subnormal: the fp32 adder rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
}

/// Arithmetic type of a storage type: float for fp32 and bf16, double for fp64.
template <class S>
struct AccumulateOf {
  using type = float;
};
template <>
struct AccumulateOf<double> {
  using type = double;
};
template <class S>
using Accumulate = typename AccumulateOf<S>::type;
inline DType accumulate_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

template <class T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<bf16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::i32;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::u16;

/// Calls f with a value of the storage type: dispatch_storage(t, [&](auto s) { using S = decltype(s); ... }).
template <class F>
void dispatch_storage(DType t, F&& f) {
  switch (t) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f64:
      return f(double{});
    default:
      CHECK(false, "no arithmetic on {} tensors", dtype_name(t));
  }
}

}  // namespace temper
