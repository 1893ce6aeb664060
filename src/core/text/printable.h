#pragma once
// Text from outside as it may be shown on a terminal or written into a log.

#include <string>
#include <string_view>

namespace temper {

/// Line ends and tabs stay; other control characters, and those that turn the direction of writing, become
/// \x1b or \u202e; bytes that are no UTF-8 become \xff.
std::string printable(std::string_view text);

}  // namespace temper
