#include "src/core/digest/hash.h"

#include <xxhash.h>

#include "src/core/check.h"

namespace temper {
namespace {

std::string to_hex(XXH128_hash_t value) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, value);
  std::string text;
  for (unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

Digest::Digest() : state_(XXH3_createState()) {
  CHECK(state_ != nullptr, "cannot allocate a digest state");
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Digest::~Digest() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Digest::update(const void* data, int64_t bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data, static_cast<size_t>(bytes));
}

std::string Digest::hex() const {
  return to_hex(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_)));
}

std::string digest_hex(const void* data, int64_t bytes) {
  return to_hex(XXH3_128bits(data, static_cast<size_t>(bytes)));
}

}  // namespace temper
