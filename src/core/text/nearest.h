#pragma once
// Suggestions for a misspelt name: known names by edit distance.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

/// Bytes to insert, remove or replace that turn `a` into `b`. Takes a.size() * b.size() steps.
size_t edit_distance(std::string_view a, std::string_view b);

/// Known names close enough to `name` to be meant, nearest first, at most three. Close: the edits are at most
/// a third of the part behind the last dot, one is the beginning of the other, or that part alone is the same
/// (the right key in the wrong section). None for a name of more than 64 bytes.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known);

/// "did you mean `a`, `b` or `c`?" between `before` and `after`, or nothing at all.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string_view before = "; ", std::string_view after = "");

}  // namespace temper
