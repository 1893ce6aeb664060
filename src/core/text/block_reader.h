#pragma once
// A text file in blocks, front to back; one that zstd packed is unpacked on the way. And the packing.

#include <memory>
#include <string>
#include <string_view>

#include "src/core/digest/hash.h"
#include "src/core/file.h"

namespace temper {

class BlockReader {
 public:
  /// What the file is, its first bytes say. `digest` takes in its bytes, as they lie there, while they are
  /// read.
  explicit BlockReader(const std::string& path, Digest* digest = nullptr);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  /// The next block of at most 1 MiB; false at the end. Error(Exit::data) where a packed file is damaged or
  /// ends too early.
  bool next(std::string& block);
  /// The size of the file as it lies there.
  int64_t bytes() const { return file_.size(); }

 private:
  bool read(std::string& bytes);
  struct Unpacker;

  InputFile file_;
  Digest* digest_;
  int64_t offset_ = 0;
  std::unique_ptr<Unpacker> unpacker_;  // null: plain text
};

/// As the program `zstd` writes it, with a checksum.
std::string zstd_packed(std::string_view text);

}  // namespace temper
