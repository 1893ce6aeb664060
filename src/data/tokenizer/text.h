#pragma once
// Text primitives of the tokenizer: UTF-8 in single steps, white space and word characters, the byte
// alphabet. Unicode tables: utf8proc. Two tables here reproduce what the reference library knows and the C
// libraries of this system may not: `known_alias` (for regexes) and `is_inert` (for NFC). Functions on
// `valid` text require valid UTF-8; only utf8_unit and find_invalid_utf8 take any bytes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace temper {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// One step over possibly broken UTF-8: a whole character, or the longest prefix of one.
struct Utf8Unit {
  enum class Kind { valid, invalid, truncated };  // truncated: the text ends inside a character
  size_t bytes = 0;
  Kind kind = Kind::valid;
};
Utf8Unit utf8_unit(std::string_view text, size_t at);

/// Offset of the first byte that is not UTF-8, or nullopt.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Length in bytes of the character that begins with `lead` (valid text).
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
/// The character at `at` (valid text).
char32_t decode_char(std::string_view text, size_t at);
/// Offset of the last character of a non-empty valid text.
size_t last_char_offset(std::string_view text);
void append_char(std::string& text, char32_t c);

bool is_white_space(char32_t c);  // property White_Space
bool is_word_char(char32_t c);    // Alphabetic, marks, decimal digits, connectors, join controls

/// Printable character that stands for a byte in byte-level vocabularies, as UTF-8.
std::string byte_to_alphabet(uint8_t byte);
/// Bytes that a token written in the byte alphabet stands for; nullopt if it has any other character.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

/// A character of older Unicode with the same length in UTF-8 and the same properties, for characters that
/// PCRE2's tables may lack (added in Unicode 15 to 16) or see differently (U+180E is no white space).
/// Other characters: themselves.
char32_t known_alias(char32_t c);
/// `text` with every character replaced by its alias; returns `text` itself if nothing changes, else
/// `buffer`.
std::string_view alias_text(std::string_view text, std::string& buffer);

/// Characters newer than the reference's normalisation tables: there they neither reorder nor compose.
bool is_inert(char32_t c);

}  // namespace temper
