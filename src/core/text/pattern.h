#pragma once
// Names given by pattern.

#include <string_view>

namespace temper {

/// Whether all of `text` is as `pattern` says, in which * stands for any text, or none.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace temper
