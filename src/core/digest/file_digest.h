#pragma once
// What a file held when it was read: size and digest. Two files of one size and digest are taken for equal.

#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

struct FileDigest {
  std::string path;
  int64_t bytes = 0;
  std::string digest;  // XXH3-128 of the bytes

  bool same_content(const FileDigest& other) const { return bytes == other.bytes && digest == other.digest; }
  /// "data.jsonl (85 bytes, digest 0123...)"
  std::string text() const;
};

/// The file's content is at hand.
FileDigest digest_of_text(const std::string& path, std::string_view content);
/// Reads the file, in windows. Errors are those of InputFile.
FileDigest digest_of_file(const std::string& path);

}  // namespace temper
