#pragma once
// Large numbers for people: 0.4, 212, 8.1k, 12k, 3.4M; or all digits: 986,496.

#include <cstdint>
#include <string>

namespace temper {

/// Two digits or more; not negative.
std::string short_number(double value);

/// All digits, with commas.
std::string grouped_number(int64_t value);

}  // namespace temper
