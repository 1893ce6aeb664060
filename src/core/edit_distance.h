#pragma once
// How far a misspelt name is from a known one.

#include <cstddef>
#include <string_view>

namespace temper {

/// Bytes to insert, remove or replace that turn `a` into `b`. Takes a.size() * b.size() steps.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace temper
