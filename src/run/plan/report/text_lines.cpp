#include "src/run/plan/report/text_lines.h"

#include <algorithm>

namespace temper {
namespace {

constexpr std::string_view kMore = " ...";

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }

/// Bytes of the first `characters` of them.
size_t bytes_of(std::string_view text, size_t characters) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (begins_character(text[at]) && characters-- == 0) break;
  return at;
}

size_t length(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

/// The bytes of a line's first part: up to the last blank in it, unless that leaves less than half.
size_t break_at(std::string_view line, size_t width) {
  const size_t whole = bytes_of(line, width);
  if (whole == line.size()) return whole;
  const size_t blank = line.substr(0, whole + 1).rfind(' ');
  return blank != std::string_view::npos && blank > whole / 2 ? blank : whole;
}

}  // namespace

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t end = break_at(line, width);
    lines.emplace_back(line.substr(0, end));
    text.remove_prefix(end);
    if (!text.empty() && (text[0] == '\n' || text[0] == ' ')) text.remove_prefix(1);
  }
  return lines;
}

std::vector<std::string> excerpt(std::string_view text, size_t width, size_t first, size_t last) {
  std::vector<std::string> lines = wrapped(text, width);
  if (lines.size() <= first + last) return lines;
  std::erase_if(lines,
                [](const std::string& line) { return line.find_first_not_of(" \t") == std::string::npos; });
  if (lines.size() <= first + last) return lines;
  lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(first),
              lines.end() - static_cast<std::ptrdiff_t>(last));
  std::string& cut = lines[first - 1];
  cut.resize(bytes_of(cut, width - kMore.size()));
  cut += kMore;
  return lines;
}

std::string cut_middle(std::string_view text, size_t begin, size_t end) {
  constexpr std::string_view kGap = " ... ";
  const size_t all = length(text);
  if (all <= begin + kGap.size() + end) return std::string(text);
  std::string cut(text.substr(0, bytes_of(text, begin)));
  return cut.append(kGap).append(text.substr(bytes_of(text, all - end)));
}

}  // namespace temper
