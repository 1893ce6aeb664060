#include "src/data/jinja/text.h"

#include <spdlog/fmt/fmt.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace temper::jinja {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

template <typename Predicate>
std::string_view strip_if(std::string_view text, Sides sides, Predicate drop) {
  while (sides.left && !text.empty()) {
    size_t at = 0;
    if (!drop(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (sides.right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (is_continuation(text[begin])) --begin;
    size_t at = begin;
    if (!drop(next_code_point(text, at))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

/// str.isprintable of one code point.
bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/// Drops the underscores that Python allows between digits; nullopt when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

bool valid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    if (bytes[at] < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t c = 0;
    const auto used = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (used <= 0) return false;
    at += static_cast<size_t>(used);
  }
  return true;
}

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(at++);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t c = lead & (0x3Fu >> more);
  for (int i = 0; i < more && at < text.size(); ++i) c = (c << 6) | (byte(at++) & 0x3F);
  return c;
}

void append_code_point(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto used = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(used));
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

std::vector<size_t> code_point_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  if (is_ascii(text)) return offsets;
  for (size_t at = 0; at < text.size(); ++at)
    if (!is_continuation(text[at])) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

size_t find_first(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size() || text.size() - from < part.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

size_t find_last(std::string_view text, std::string_view part) {
  if (part.size() < 2) return text.rfind(part);
  const std::string back_text(text.rbegin(), text.rend()), back_part(part.rbegin(), part.rend());
  const size_t found = find_first(back_text, back_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_word(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
  return c == '_' || number || is_letter(c);
}

std::string_view strip_space(std::string_view text, Sides sides) { return strip_if(text, sides, is_space); }

std::string_view strip_any(std::string_view text, std::string_view characters, Sides sides) {
  std::vector<char32_t> set;
  for (size_t at = 0; at < characters.size();) set.push_back(next_code_point(characters, at));
  std::sort(set.begin(), set.end());
  return strip_if(text, sides, [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string quote_python(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_code_point(out, c);
    } else {
      const auto code = static_cast<uint32_t>(c);
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  return out + quote;
}

std::string quote_json(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const auto code = static_cast<uint32_t>(c);
    switch (code) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000)) {
          out += fmt::format("\\u{:04x}", code);
        } else if (ascii && code >= 0x10000) {
          const uint32_t pair = code - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
        } else {
          append_code_point(out, c);
        }
    }
  }
  return out + '"';
}

std::string format_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = strip_space(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || digits->front() == '-') return std::nullopt;
  uint64_t magnitude = 0;
  const auto result = std::from_chars(digits->data(), digits->data() + digits->size(), magnitude, base);
  if (result.ec != std::errc() || result.ptr != digits->data() + digits->size()) return std::nullopt;
  const auto limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (magnitude > limit) return std::nullopt;
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

std::optional<double> parse_real(std::string_view text) {
  text = strip_space(text);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto plain = without_underscores(text);
  if (!plain || plain->empty() || (plain->front() == '-' && text.front() == '+')) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(plain->data(), plain->data() + plain->size(), value);
  if (result.ptr != plain->data() + plain->size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // from_chars leaves the value alone then; only the sign and the exponent's sign matter for inf and 0.
    const bool tiny = plain->find("e-") != std::string::npos || plain->find("E-") != std::string::npos;
    return std::copysign(tiny ? 0.0 : std::numeric_limits<double>::infinity(),
                         plain->front() == '-' ? -1.0 : 1.0);
  }
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace temper::jinja
