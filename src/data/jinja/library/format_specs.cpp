#include "src/data/jinja/library/format_specs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/core/check.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

int64_t take_number(Runtime& runtime, std::string_view& rest) {
  const size_t count = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const auto number = parse_integer(rest.substr(0, count), 10);
  if (!number || *number > 1'000'000) runtime.fail("a format is wider than 1000000");
  rest.remove_prefix(count);
  return *number;
}

bool starts_with_digit(std::string_view rest) { return !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; }

FormatSpec parse_spec(Runtime& runtime, std::string_view rest) {
  FormatSpec spec;
  const auto is_align = [&](size_t at) { return at < rest.size() && is_one_of(rest[at], "<>=^"); };
  size_t first = 0;
  if (!rest.empty()) next_code_point(rest, first);
  if (first > 0 && is_align(first)) {
    spec.fill = rest.substr(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (is_align(0)) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty() && is_one_of(rest[0], "+- ")) {
    spec.sign = rest[0];
    rest.remove_prefix(1);
  }
  spec.prefix = take(rest, '#');
  if (rest.starts_with('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  take_width(runtime, rest, spec);
  if (!rest.empty() && is_one_of(rest[0], ",_")) {
    spec.group = rest[0];
    rest.remove_prefix(1);
  }
  take_precision(runtime, rest, spec);
  if (rest.size() == 1) spec.type = rest[0];
  if (rest.size() > 1) runtime.fail(fmt::format("the format `{}` is not supported", rest.substr(0, 40)));
  return spec;
}

[[noreturn]] void fail_type(Runtime& runtime, const FormatSpec& spec, const Value& value) {
  runtime.fail(spec.type == '\0' ? fmt::format("a value of type '{}' takes no such format", type_name(value))
                                 : fmt::format("the format type `{}` is not supported for '{}'", spec.type,
                                               type_name(value)));
}

/// `sign` and `digits` in the width of the format.
std::string aligned(Runtime& runtime, const FormatSpec& spec, char align, std::string_view sign,
                    std::string_view text) {
  const int64_t padding =
      std::max<int64_t>(spec.width - static_cast<int64_t>(sign.size()) - count_code_points(text), 0);
  if (align == '=') return std::string(sign) + pad(runtime, text, spec.fill, padding, 0);
  const int64_t left = align == '<' ? 0 : align == '^' ? padding / 2 : padding;
  return pad(runtime, std::string(sign).append(text), spec.fill, left, padding - left);
}

std::string grouped(const FormatSpec& spec, std::string_view digits, size_t each) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  if (spec.group == '\0') return std::string(digits);
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % each == 0) out += spec.group;
    out += digits[i];
  }
  return out.append(digits.substr(whole));
}

std::string format_number(Runtime& runtime, const FormatSpec& spec, bool negative, std::string_view prefix,
                          std::string_view digits, size_t each = 3) {
  if (spec.group != '\0' && spec.align == '=')
    runtime.fail("groups of digits filled up with zeros are not supported");
  std::string sign(negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign));
  return aligned(runtime, spec, spec.align == '\0' ? '>' : spec.align, sign.append(prefix),
                 grouped(spec, digits, each));
}

}  // namespace

bool take(std::string_view& rest, char c) {
  if (!rest.starts_with(c)) return false;
  rest.remove_prefix(1);
  return true;
}

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

void take_width(Runtime& runtime, std::string_view& rest, FormatSpec& spec) {
  if (starts_with_digit(rest)) spec.width = take_number(runtime, rest);
}

void take_precision(Runtime& runtime, std::string_view& rest, FormatSpec& spec) {
  if (!take(rest, '.')) return;
  if (!starts_with_digit(rest)) runtime.fail("a format has no precision behind its `.`");
  const int64_t precision = take_number(runtime, rest);
  if (precision > 300) runtime.fail("a format has a precision beyond 300");
  spec.precision = static_cast<int>(precision);
}

std::string format_integer(Runtime& runtime, const FormatSpec& spec, int64_t n) {
  if (spec.precision) runtime.fail("a precision of an integer is not supported");
  const uint64_t size = n < 0 ? ~static_cast<uint64_t>(n) + 1 : static_cast<uint64_t>(n);
  switch (spec.type) {
    case '\0':
    case 'd':
      if (spec.prefix) break;
      return format_number(runtime, spec, n < 0, "", fmt::format("{}", size));
    case 'x':
      return format_number(runtime, spec, n < 0, spec.prefix ? "0x" : "", fmt::format("{:x}", size), 4);
    case 'X':
      return format_number(runtime, spec, n < 0, spec.prefix ? "0X" : "", fmt::format("{:X}", size), 4);
    case 'o':
      return format_number(runtime, spec, n < 0, spec.prefix ? "0o" : "", fmt::format("{:o}", size), 4);
    case 'b':
      return format_number(runtime, spec, n < 0, spec.prefix ? "0b" : "", fmt::format("{:b}", size), 4);
    default:
      break;
  }
  fail_type(runtime, spec, n);
}

std::string format_float(Runtime& runtime, const FormatSpec& spec, double x) {
  const bool known = spec.type == '\0' ? !spec.precision : is_one_of(spec.type, "eEfFgG%");
  if (!known || spec.prefix || !std::isfinite(x)) fail_type(runtime, spec, x);
  const bool negative = std::signbit(x);
  const double size = std::fabs(x);
  if (spec.type == '\0') return format_number(runtime, spec, negative, "", format_real(size));
  const char form[] = {'%', '.', '*', spec.type == '%' ? 'f' : spec.type, '\0'};
  const double shown = spec.type == '%' ? size * 100 : size;
  char buffer[700];
  const int length = std::snprintf(buffer, sizeof buffer, form, spec.precision.value_or(6), shown);
  std::string digits(buffer, static_cast<size_t>(length));
  if (spec.type == '%') digits += '%';
  return format_number(runtime, spec, negative, "", digits);
}

std::string format_text(Runtime& runtime, const FormatSpec& spec, std::string_view text) {
  const bool plain = (spec.type == '\0' || spec.type == 's') && spec.sign == '-' && !spec.prefix &&
                     spec.group == '\0' && spec.align != '=';
  if (!plain) fail_type(runtime, spec, text);
  runtime.handle(16 * text.size());
  size_t end = text.size();
  if (spec.precision) {
    end = 0;
    for (int i = 0; i < *spec.precision && end < text.size(); ++i) next_code_point(text, end);
  }
  return aligned(runtime, spec, spec.align == '\0' ? '<' : spec.align, "", text.substr(0, end));
}

std::string format_value(Runtime& runtime, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(runtime, value);
  const FormatSpec spec = parse_spec(runtime, text);
  if (const auto whole = as_text(value)) return format_text(runtime, spec, *whole);
  const auto n = as_integer(value);
  const bool as_float = spec.type != '\0' && is_one_of(spec.type, "eEfFgG%");
  if (n && !as_float) return format_integer(runtime, spec, *n);
  if (const auto x = as_real(value)) return format_float(runtime, spec, *x);
  fail_type(runtime, spec, value);
}

std::string pad(Runtime& runtime, std::string_view text, std::string_view fill, int64_t left, int64_t right) {
  runtime.reserve(text.size());
  if (left + right > runtime.limits().memory_bytes) runtime.reserve(static_cast<size_t>(left + right));
  runtime.reserve(static_cast<size_t>(left + right) * fill.size());
  std::string out;
  for (; left > 0; --left) out += fill;
  out += text;
  for (; right > 0; --right) out += fill;
  return out;
}

}  // namespace temper::jinja
