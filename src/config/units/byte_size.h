#pragma once
// Sizes as users write them: "40GiB", "1.5 gb". Units B, KB, MB, GB, TB (powers of 1,000) and KiB, MiB, GiB,
// TiB, in any case and perhaps behind spaces.

#include <cstdint>
#include <optional>
#include <string_view>

namespace temper {

/// Bytes, rounded down; nothing when `text` is no size of at least a byte and below 2^53.
std::optional<int64_t> parse_byte_size(std::string_view text);

}  // namespace temper
