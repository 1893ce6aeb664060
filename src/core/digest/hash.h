#pragma once
// XXH3-128, the digest of every manifest and checkpoint of temper (accidents, not attackers).

#include <cstdint>
#include <string>

namespace temper {

/// Streaming digest of a byte sequence; `hex()` is 32 lower-case digits of the canonical (big-endian) form.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  void update(const void* data, int64_t bytes);
  std::string hex() const;

 private:
  void* state_;
};

std::string digest_hex(const void* data, int64_t bytes);

}  // namespace temper
