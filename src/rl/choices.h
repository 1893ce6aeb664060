#pragma once
// Names a user chose from a list: looks them up and, when a name is not in the list, says which legal names
// are nearest and what all of them are.

#include <span>
#include <string>
#include <string_view>

namespace temper {

/// "did you mean `a`? legal: a, b, c": the fix line of an error about `name`.
std::string suggest_names(std::string_view name, std::span<const std::string_view> legal);

/// Index of `name` in `legal`, or Error(Exit::usage) that names the config key.
size_t choice_index(const std::string& key, std::string_view name, std::span<const std::string_view> legal);

}  // namespace temper
