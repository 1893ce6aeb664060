#pragma once
// The notation of widths, precisions and types that str.format and the `%` operator share in Python.

#include <optional>
#include <string>
#include <string_view>

#include "src/data/jinja/library.h"

namespace temper::jinja {

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  std::string_view fill = " ";
  char align = '\0';  // of texts < else >
  char sign = '-';
  bool prefix = false;
  char group = '\0';
  int64_t width = 0;
  std::optional<int> precision = {};
  char type = '\0';
};

/// Takes `c` from the front of a text if it is there.
bool take(std::string_view& rest, char c);
bool is_one_of(char c, std::string_view set);
/// A number at the front of a text, and a `.` with a number.
void take_width(Runtime& runtime, std::string_view& rest, FormatSpec& spec);
void take_precision(Runtime& runtime, std::string_view& rest, FormatSpec& spec);

std::string format_integer(Runtime& runtime, const FormatSpec& spec, int64_t n);
std::string format_float(Runtime& runtime, const FormatSpec& spec, double x);
std::string format_text(Runtime& runtime, const FormatSpec& spec, std::string_view text);
/// format(value, spec).
std::string format_value(Runtime& runtime, const Value& value, std::string_view spec);

}  // namespace temper::jinja
