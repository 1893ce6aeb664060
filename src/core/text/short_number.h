#pragma once
// Numbers for people: 0.4, 212, 8.1k, 12k, 3.4M; or all digits: 986,496; or what is counted: 2 ranks.

#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

/// Two digits or more; not negative.
std::string short_number(double value);

/// All digits, with commas.
std::string grouped_number(int64_t value);

/// `count` and what is counted, with an s where there are several: "1 rank", "2 ranks".
std::string count_text(int64_t count, std::string_view noun);

}  // namespace temper
