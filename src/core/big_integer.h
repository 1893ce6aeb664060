#pragma once
// Integers of JSON beyond 64 bits, which a parser would make doubles of. Lines of data keep their digits: a
// chat template prints them, an answer is compared as text.

#include <optional>
#include <string>
#include <string_view>

#include "src/core/json.h"

namespace temper {

/// As parse_json, but an integer beyond 64 bits becomes a binary value that holds its digits. dump_json_line
/// writes the nearest double for it, as for any reader that does not ask here.
Json parse_json_keeping_integers(std::string_view text, const std::string& source,
                                 const JsonLimits& limits = {});

/// Sign and digits of an integer beyond 63 bits, which no int64_t holds; nullopt for any other value.
std::optional<std::string> big_integer(const Json& value);

}  // namespace temper
