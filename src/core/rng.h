#pragma once
// Counter-based random numbers (Philox4x32-10): a value is a pure function of seed, stream, prompt, sample
// and position, never of batch, rank or step. Keying as in the header comment of SampleKey; streams below.
// Source: Salmon et al. 2011; known answers in tests/core/rng_test.cpp.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace temper {

enum class RngStream : uint32_t { sampling = 0, data_order = 1, weight_init = 6, moments = 7 };

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock philox(PhiloxBlock counter, uint64_t seed) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0], p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// Identity of a response: data position (44 bits: epoch-running index of the prompt) and sample (12 bits).
/// Beyond these limits two responses would share their noise: configs are held to them, the engine checks.
struct SampleKey {
  uint64_t seed = 0;
  int64_t data_position = 0;
  int32_t sample = 0;

  static constexpr int64_t kMaxPosition = int64_t{1} << 44;
  static constexpr int32_t kMaxSample = 1 << 12;

  /// Words for token ids 4*v4 .. 4*v4+3 at response position r (stream 0).
  PhiloxBlock words(uint32_t v4, uint32_t r) const {
    const uint32_t p = static_cast<uint32_t>(data_position & 0xfffff);
    const uint32_t iteration = static_cast<uint32_t>(data_position >> 20);
    return philox({v4, r, (p << 12) | static_cast<uint32_t>(sample), iteration}, seed);
  }
};

/// Words of another stream with its own meaning of the first three counter words (last: stream << 24).
inline PhiloxBlock stream_words(uint64_t seed, RngStream stream, uint32_t a, uint32_t b, uint32_t c) {
  return philox({a, b, c, static_cast<uint32_t>(stream) << 24}, seed);
}

/// What rounds the moments of the elements 4*n4 .. 4*n4+3 of all parameters in an optimizer update: a word
/// for each, its low half for the first moment, its high half for the second.
inline PhiloxBlock moment_words(uint64_t seed, uint32_t update, uint64_t n4) {
  return stream_words(seed, RngStream::moments, static_cast<uint32_t>(n4), static_cast<uint32_t>(n4 >> 32),
                      update);
}

inline double uniform_of(uint32_t word) { return word * 0x1p-32; }

namespace rng_detail {
inline float plog_poly(float f, float e) {
  constexpr float c[9] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                          -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                          2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  float q = c[0];
#pragma GCC unroll 8  // without it a loop over plog is not vectorised
  for (int i = 1; i < 9; ++i) q = std::fma(q, f, c[i]);
  const float z = f * f, w = z * f;
  const float y = f + std::fma(q, w, std::fma(e, -2.12194440e-4f, -0.5f * z));
  return std::fma(e, 0.693359375f, y);
}
}  // namespace rng_detail

/// ln(x) for normal x > 0, within 0.81 ulp, the same bits on every machine.
inline float plog(float x) {
  const uint32_t i = std::bit_cast<uint32_t>(x) - 0x3F3504F3u;
  const float e = static_cast<float>(static_cast<int32_t>(i) >> 23);
  const float m = std::bit_cast<float>((i & 0x7FFFFFu) + 0x3F3504F3u);
  return rng_detail::plog_poly(m - 1.0f, e);
}

/// Exponential(1) variate of a random word; never 0 or infinite.
inline float exponential_of(uint32_t x) {
  const uint32_t k = x < 0x80000000u ? x : ~x;
  const float u = static_cast<float>(2 * k + 1) * 0x1p-33f;
  if (x < 0x80000000u) return -plog(u);
  const float h = 1.0f - u;
  return std::bit_cast<uint32_t>(h) >= 0x3F3504F3u ? -rng_detail::plog_poly(-u, 0.0f) : -plog(h);
}

}  // namespace temper
