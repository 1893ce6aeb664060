#pragma once
// The lines of a JSONL file: where each begins, or a sample of them that takes a bounded time however large
// the file is. Files that are something else (Parquet, compressed) are refused by what they are.

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/file.h"
#include "src/core/digest/hash.h"

namespace temper {

/// Bytes [begin, end) of a file, the end of line left out.
struct Line {
  int64_t begin = 0, end = 0;
  int64_t number = 0;  // from 1; 0: not known
};

/// All that are not blank. Error(Exit::data) when there is none, and for one of more than 8 MiB. `digest`
/// takes in the bytes of the file as they are read.
std::vector<Line> find_lines(const InputFile& file, Digest* digest = nullptr);

std::string read_line(const InputFile& file, const Line& line);

struct LineSample {
  int64_t rows = 0;              // of the file
  bool counted = true;           // false: estimated from the mean length of the sample
  std::vector<Line> lines = {};  // evenly spaced over the file, the first one among them
};
/// At most `max_lines`, and of long ones fewer: 16 MiB together, but at least 16. A file of more than
/// `count_bytes` is not read as a whole.
LineSample sample_lines(const InputFile& file, int64_t max_lines, int64_t count_bytes = int64_t{256} << 20);

}  // namespace temper
