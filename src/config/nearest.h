#pragma once
// Suggestions for a misspelt name: known names by edit distance.

#include <string>
#include <string_view>
#include <vector>

namespace temper {

/// Known names close enough to `name` to be meant, nearest first, at most three.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known);

/// "; did you mean `a` or `b`?", or nothing.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace temper
