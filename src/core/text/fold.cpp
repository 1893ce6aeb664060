#include "src/core/text/fold.h"

#include <algorithm>

#include "src/core/split.h"

namespace temper {
namespace {

/// Where the lines that carry a line on begin.
size_t continuation(std::string_view line, size_t columns) {
  const size_t indentation = std::min(line.find_first_not_of(' '), line.size());
  size_t column = indentation == 0 ? 2 : indentation;
  for (size_t gap = line.find("  ", indentation); gap != std::string_view::npos; gap = line.find("  ", gap)) {
    gap = std::min(line.find_first_not_of(' ', gap), line.size());
    if (gap > columns / 2) break;
    column = gap;
  }
  return column;
}

}  // namespace

std::string folded(std::string_view text, size_t columns) {
  std::string out;
  for (std::string line : split(text, '\n')) {
    const std::string next(continuation(line, columns), ' ');
    while (line.size() > columns) {
      size_t end = line.rfind(' ', columns);
      if (end == std::string::npos || end < next.size()) end = line.find(' ', columns);  // a long word
      if (end == std::string::npos) break;
      out += line.substr(0, end) + "\n";
      line = next + line.substr(end + 1);
    }
    out += line + "\n";
  }
  out.pop_back();
  return out;
}

}  // namespace temper
