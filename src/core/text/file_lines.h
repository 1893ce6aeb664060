#pragma once
// The lines of a text file of any size, front to back, plain or packed by zstd.

#include <cstdint>
#include <string>

#include "src/core/check.h"
#include "src/core/digest/file_digest.h"
#include "src/core/file.h"
#include "src/core/text/block_reader.h"

namespace temper {

/// Calls visit(line, number) for every line, counted from 1. Error(Exit::data) for one of more than
/// `max_bytes`. `held`: what the file held while it was read, plain or packed.
template <typename Visit>
void for_each_line(const std::string& path, int64_t max_bytes, const Visit& visit,
                   FileDigest* held = nullptr) {
  Digest digest;
  BlockReader file(path, held ? &digest : nullptr);
  std::string rest, block;
  int64_t number = 0;
  while (file.next(block)) {
    size_t begin = 0;
    for (size_t end; (end = block.find('\n', begin)) != std::string::npos; begin = end + 1) {
      rest.append(block, begin, end - begin);
      visit(rest, ++number);
      rest.clear();
    }
    rest.append(block, begin);
    if (static_cast<int64_t>(rest.size()) > max_bytes) {
      fail(Exit::data, {.what = "a line of a file is too long",
                        .where = fmt::format("{}:{}", path, number + 1),
                        .why = fmt::format("more than {} bytes without an end of line", max_bytes),
                        .fix = "write one object per line"});
    }
  }
  if (!rest.empty()) visit(rest, number + 1);
  if (held) *held = {path, file.bytes(), digest.hex()};
}

/// False for a file whose last line has no end: it is being written, or a crash cut it.
inline bool ends_a_line(const std::string& path) {
  const InputFile file(path);
  char last = '\n';
  if (file.size() > 0) file.read(&last, file.size() - 1, 1);
  return last == '\n';
}

}  // namespace temper
