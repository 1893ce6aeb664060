#pragma once
// Philox of src/core/rng.h for many blocks at once.

#include <cstdint>

namespace temper::cpu {

inline constexpr int kPhiloxBlocks = 16;
/// The words of blocks side by side: words[j][b] is word j of block b.
using PhiloxWords = uint32_t[4][kPhiloxBlocks];

/// Counters become random words; each round is a few vector instructions.
inline void philox_blocks(PhiloxWords& words, uint64_t seed) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
#pragma omp simd
    for (int b = 0; b < kPhiloxBlocks; ++b) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * words[0][b], p1 = uint64_t{0xCD9E8D57u} * words[2][b];
      words[0][b] = static_cast<uint32_t>(p1 >> 32) ^ words[1][b] ^ k0;
      words[2][b] = static_cast<uint32_t>(p0 >> 32) ^ words[3][b] ^ k1;
      words[1][b] = static_cast<uint32_t>(p1);
      words[3][b] = static_cast<uint32_t>(p0);
    }
  }
}

}  // namespace temper::cpu
