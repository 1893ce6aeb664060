#pragma once
// Text between separators.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

/// "a.b" at '.' is "a" and "b"; one part more than separators, empty ones too.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace temper
