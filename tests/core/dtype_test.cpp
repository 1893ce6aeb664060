// Conversions of storage types, and the exponential that the forward kernels share.
#include "src/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/canonical.h"

namespace temper {
namespace {

bool is_nan16(uint32_t bits, uint32_t infinity) { return (bits & 0x7fffu) > infinity; }

TEST(Bf16, AllPatternsComeBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(x);
    if (is_nan16(bits, 0x7f80)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(is_nan16(bf16(wide).bits, 0x7f80));
    } else {
      EXPECT_EQ(bf16(wide).bits, bits);
    }
  }
}

/// Values between neighbours go down below the middle, up above it, and to the even one in the middle.
TEST(Bf16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits)
    for (uint32_t sign : {0u, 0x8000u}) {
      const uint32_t low = bits | sign, base = low << 16;
      EXPECT_EQ(bf16_bits(std::bit_cast<float>(base + 0x7fffu)), low);
      EXPECT_EQ(bf16_bits(std::bit_cast<float>(base + 0x8000u)), low + (low & 1u));
      EXPECT_EQ(bf16_bits(std::bit_cast<float>(base + 0x8001u)), low + 1);
    }
  EXPECT_EQ(bf16_bits(3.4e38f), 0x7f80);  // beyond the largest: infinity
  EXPECT_TRUE(is_nan16(bf16_bits(std::bit_cast<float>(0x7f800001u)), 0x7f80));
}

/// Independent of the conversion under test: fp16 from its definition.
double fp16_by_definition(uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 31u);
  const double mantissa = static_cast<double>(bits & 1023u);
  const double magnitude = exponent == 31  ? HUGE_VAL
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024.0 + mantissa, exponent - 25);
  return bits & 0x8000u ? -magnitude : magnitude;
}

TEST(Fp16, AllPatternsComeBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = fp16_to_float(static_cast<uint16_t>(bits));
    if (is_nan16(bits, 0x7c00)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(is_nan16(float_to_fp16(wide), 0x7c00));
    } else {
      EXPECT_EQ(wide, fp16_by_definition(bits));
      EXPECT_EQ(float_to_fp16(wide), bits);
    }
  }
}

TEST(Fp16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    for (uint32_t sign : {0u, 0x8000u}) {
      const uint32_t low = bits | sign;
      // 65536 stands for the neighbour above the largest number.
      const double above = bits == 0x7bff ? (sign ? -65536.0 : 65536.0) : fp16_by_definition(low + 1);
      const float middle = static_cast<float>((fp16_by_definition(low) + above) / 2);
      EXPECT_EQ(float_to_fp16(middle), low + (low & 1u));
      EXPECT_EQ(float_to_fp16(std::nextafter(middle, 0.0f)), low);
      EXPECT_EQ(float_to_fp16(std::nextafter(middle, sign ? -HUGE_VALF : HUGE_VALF)), low + 1);
    }
  EXPECT_EQ(float_to_fp16(HUGE_VALF), 0x7c00);
  EXPECT_EQ(float_to_fp16(1e-30f), 0);
}

#ifdef __FLT16_MANT_DIG__
TEST(Fp16, EqualsTheCompiler) {
  for (uint64_t u = 0; u <= 0xffffffffu; u += 9973) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
    if (std::isnan(x)) continue;
    ASSERT_EQ(float_to_fp16(x), std::bit_cast<uint16_t>(static_cast<_Float16>(x))) << x;
  }
}
#endif

/// Every 61st float, from 0 down to below the underflow (2^-125.5, where the result becomes 0) and up
/// to 88.7.
TEST(Exponential, ErrorAndOrder) {
  double worst = 0.0, at = 0.0;
  for (const uint32_t sign : {0u, 0x80000000u}) {
    float previous = 1.0f;
    for (uint32_t bits = 0; std::bit_cast<float>(bits) < (sign ? 110.0f : 88.7f); bits += 61) {
      const float x = std::bit_cast<float>(bits | sign), y = cpu::exponential(x);
      ASSERT_TRUE(sign ? y <= previous : y >= previous) << "order at " << x;
      previous = y;
      const double exact = std::exp(static_cast<double>(x));
      if (exact < 0x1p-125 && y == 0.0f) continue;
      const double error = std::abs(static_cast<double>(y) - exact) / std::ldexp(1.0, std::ilogb(exact) - 23);
      if (error > worst) worst = error, at = x;
    }
  }
  EXPECT_LT(worst, 2.0) << "at " << at;
  printf("largest error %.4f ulp at %.9g\n", worst, at);
}

TEST(Exponential, SpecialValues) {
  EXPECT_EQ(cpu::exponential(0.0f), 1.0f);
  EXPECT_EQ(cpu::exponential(-0.0f), 1.0f);
  EXPECT_EQ(cpu::exponential(-HUGE_VALF), 0.0f);
  EXPECT_EQ(cpu::exponential(-3e38f), 0.0f);
  EXPECT_TRUE(std::isnan(cpu::exponential(std::nanf(""))));
  EXPECT_TRUE(std::isfinite(cpu::exponential(88.7f)));
  EXPECT_TRUE(std::isfinite(cpu::exponential(HUGE_VALF)));
}

/// A loop that the compiler turns into vectors gives the bits of one call at a time.
TEST(Exponential, VectorLoopHasTheSameBits) {
  std::vector<float> x, all;
  for (int i = -110000; i < 90000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  all.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) all[i] = cpu::exponential(x[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    const volatile float one = x[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(cpu::exponential(one)), std::bit_cast<uint32_t>(all[i])) << x[i];
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
