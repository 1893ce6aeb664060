#pragma once
// Files of a run folder as somebody reads them who does not own the run: the folder may come from anywhere,
// and what is in it may be anything.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace temper {

/// Whether `name` in the run folder can be read; where not, and it is there, `notes` gets the reason: a link
/// leads out of the folder, or it is neither a file nor a folder.
bool may_be_read(const std::string& folder, const std::string& name, std::vector<std::string>& notes);

struct LineLimits {
  int64_t line = int64_t{16} << 20;                   // bytes of a line; longer ones are passed over
  int64_t all = std::numeric_limits<int64_t>::max();  // bytes after which no further line is read
};
struct LinesRead {
  std::vector<int64_t> too_long;  // numbers of lines
  bool whole = true;              // the file was read to its end
};
/// Calls visit(line, number) for the lines of a file, plain or packed by zstd, counted from 1.
LinesRead read_lines(const std::string& path, const LineLimits& limits,
                     const std::function<void(const std::string& line, int64_t number)>& visit);

}  // namespace temper
