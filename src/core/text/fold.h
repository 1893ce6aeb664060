#pragma once
// Text for people in as many columns as their terminal has.

#include <cstddef>
#include <string>
#include <string_view>

namespace temper {

/// Lines of more than `columns` bytes are broken between words. They go on below the second column of a list
/// (what two spaces or more lead to, in the left half), else as far in as they began, at the edge by two.
std::string folded(std::string_view text, size_t columns);

}  // namespace temper
