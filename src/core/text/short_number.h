#pragma once
// Large numbers for people: 0.4, 212, 8.1k, 12k, 3.4M.

#include <string>

namespace temper {

/// Two digits or more; not negative.
std::string short_number(double value);

}  // namespace temper
