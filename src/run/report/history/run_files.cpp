#include "src/run/report/history/run_files.h"

#include <algorithm>
#include <filesystem>

#include "src/core/file.h"
#include "src/core/text/block_reader.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

/// What is wrong with a path that is there; empty: nothing.
std::string why_not(const fs::path& root, const fs::path& path) {
  std::error_code broken;
  const fs::path real = fs::canonical(path, broken), home = fs::canonical(root, broken);
  if (broken) return "it cannot be found: " + broken.message();
  if (std::mismatch(home.begin(), home.end(), real.begin(), real.end()).first != home.end())
    return "a link leads out of the run folder";
  const fs::file_status status = fs::status(real, broken);
  return fs::is_regular_file(status) || fs::is_directory(status) ? "" : "it is no file";
}

}  // namespace

bool may_be_read(const std::string& folder, const std::string& name, std::vector<std::string>& notes) {
  const std::string path = join_path(folder, name);
  std::error_code absent;
  if (!fs::exists(fs::symlink_status(path, absent))) return false;
  const std::string why = why_not(folder, path);
  if (!why.empty()) notes.push_back(fmt::format("{} is not read: {}", path, why));
  return why.empty();
}

LinesRead read_lines(const std::string& path, const LineLimits& limits,
                     const std::function<void(const std::string&, int64_t)>& visit) {
  LinesRead read;
  BlockReader file(path);
  std::string line, block;
  int64_t number = 1, bytes = 0, length = 0;  // length: of the line, which is not kept beyond its limit
  const auto take = [&](size_t begin, size_t end) {
    length += static_cast<int64_t>(end - begin);
    if (length <= limits.line) line.append(block, begin, end - begin);
  };
  const auto end_line = [&] {
    if (length > limits.line)
      read.too_long.push_back(number);
    else
      visit(line, number);
    bytes += length, length = 0, ++number;
    line.clear();
    return bytes < limits.all;
  };
  while (file.next(block)) {
    size_t begin = 0;
    for (size_t end; (end = block.find('\n', begin)) != std::string::npos; begin = end + 1) {
      take(begin, end);
      if (!end_line()) {
        read.whole = false;
        return read;
      }
    }
    take(begin, block.size());
  }
  if (length > 0) end_line();
  return read;
}

}  // namespace temper
