#pragma once
// Text as it fits on a terminal.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

/// Lines of at most `width` characters, broken between words where there are some. `text` is UTF-8.
std::vector<std::string> wrapped(std::string_view text, size_t width);

/// The same of a text that may be long: of more than `first` + `last` lines those at its ends, blank ones
/// left out, with " ..." between them.
std::vector<std::string> excerpt(std::string_view text, size_t width, size_t first, size_t last);

/// The first `begin` and the last `end` characters of a longer text, with " ... " between them.
std::string cut_middle(std::string_view text, size_t begin, size_t end);

}  // namespace temper
