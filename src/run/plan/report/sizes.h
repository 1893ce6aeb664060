#pragma once
// Sizes and counts for people.

#include <cstdint>
#include <string>

namespace temper {

/// What sizes of a table are shown in: GiB, or MiB where the largest is below one GiB.
struct SizeUnit {
  const char* name;
  double bytes;
  int digits;  // behind the point
  double of(int64_t value) const { return static_cast<double>(value) / bytes; }
};
SizeUnit size_unit(int64_t largest);

/// "139.4 GiB", "123 MiB".
std::string size_text(int64_t bytes);

/// "8.19 billion", "596 million", "17,408".
std::string large_text(int64_t number);

/// "0.42 s", "12 s", "3.5 min", "1.8 h", "2.3 days".
std::string time_text(double seconds);

}  // namespace temper
