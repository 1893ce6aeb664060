#include "src/agents/sessions/id_paths.h"

#include "src/core/digest/hash.h"

namespace temper {

std::vector<size_t> IdPaths::deepest(std::span<const int32_t> prompt) const {
  std::vector<size_t> found;
  Digest digest;
  int64_t read = 0;
  for (const auto& [length, by_digest] : turns_) {
    if (length > std::ssize(prompt)) break;
    digest.update(prompt.data() + read, (length - read) * static_cast<int64_t>(sizeof(int32_t)));
    read = length;
    if (const auto at = by_digest.find(digest.hex()); at != by_digest.end()) found = at->second;
  }
  return found;
}

}  // namespace temper
