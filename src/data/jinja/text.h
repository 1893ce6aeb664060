#pragma once
// Text as Python sees it, on UTF-8: code points, white space, stripping, quoting, numbers to and from text.
// Everything here takes valid UTF-8 (valid_utf8 checks at the border) and offsets that lie on code points.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper::jinja {

bool valid_utf8(std::string_view text);
/// Code point at byte `at`, which is moved behind it.
char32_t next_code_point(std::string_view text, size_t& at);
void append_code_point(std::string& out, char32_t c);
int64_t count_code_points(std::string_view text);
/// Byte offsets of all code points, and the end; empty when text is ASCII (offset == index).
std::vector<size_t> code_point_offsets(std::string_view text);

/// Where `part` is first (from byte `from` on) or last found, or npos; in linear time, whatever the texts.
size_t find_first(std::string_view text, std::string_view part, size_t from = 0);
size_t find_last(std::string_view text, std::string_view part);

/// str.isspace, which is also what \s of Python's re matches.
bool is_space(char32_t c);
bool is_letter(char32_t c);
/// What \w of Python's re matches: letters, numbers and _.
bool is_word(char32_t c);
struct Sides {
  bool left = true;
  bool right = true;
};
std::string_view strip_space(std::string_view text, Sides sides = {});
/// Removes code points that occur in `characters`.
std::string_view strip_any(std::string_view text, std::string_view characters, Sides sides = {});
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// repr() of a str.
std::string quote_python(std::string_view text);
/// json.dumps of a str.
std::string quote_json(std::string_view text, bool ascii);
/// repr() of a float.
std::string format_real(double value);

/// int(text, base) and float(text); nullopt where Python raises, or beyond 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);

}  // namespace temper::jinja
