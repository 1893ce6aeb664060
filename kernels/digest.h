#pragma once
// What a word counts for in a digest, for all backends. The finalizer of MurmurHash3 (A. Appleby): every bit
// of the word and of its number changes each bit of the result half of the time.

#include <cstdint>

#ifdef __CUDACC__
#define TEMPER_EVERYWHERE __host__ __device__
#else
#define TEMPER_EVERYWHERE
#endif

namespace temper {

TEMPER_EVERYWHERE inline uint64_t digest_of_word(uint64_t word, uint64_t number) {
  uint64_t x = word ^ (number + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

/// Bytes of a digest's word; the last word of some bytes may have fewer, and zeros in their place.
inline constexpr int64_t kDigestWord = 8;

}  // namespace temper
