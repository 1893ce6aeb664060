#include "src/core/digest/file_digest.h"

#include <algorithm>

#include "src/core/file.h"
#include "src/core/digest/hash.h"

namespace temper {

std::string FileDigest::text() const { return fmt::format("{} ({} bytes, digest {})", path, bytes, digest); }

FileDigest digest_of_text(const std::string& path, std::string_view content) {
  const auto bytes = static_cast<int64_t>(content.size());
  return {path, bytes, digest_hex(content.data(), bytes)};
}

FileDigest digest_of_file(const std::string& path) {
  constexpr int64_t kWindow = int64_t{4} << 20;
  const InputFile file(path);
  Digest digest;
  std::string window;
  for (int64_t at = 0; at < file.size(); at += kWindow) {
    window.resize(static_cast<size_t>(std::min(kWindow, file.size() - at)));
    file.read(window.data(), at, static_cast<int64_t>(window.size()));
    digest.update(window.data(), static_cast<int64_t>(window.size()));
  }
  return {path, file.size(), digest.hex()};
}

}  // namespace temper
