#include "src/data/tokenizer/text.h"

#include <utf8proc.h>

#include <array>

#include "src/core/check.h"

namespace temper {
namespace {

/// Number of continuation bytes after `lead` and the legal range of the first of them; {0,..} if illegal.
struct LeadByte {
  size_t tail;
  uint8_t low;
  uint8_t high;
};

LeadByte classify_lead(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};  // no surrogates
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};  // up to U+10FFFF
  return {0, 0, 0};
}

bool is_printable_byte(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// byte_of[c] for the characters U+0000..U+0143 of the byte alphabet, -1 for others.
constexpr size_t kAlphabetEnd = 0x144;
std::array<int16_t, kAlphabetEnd> make_byte_of() {
  std::array<int16_t, kAlphabetEnd> byte_of;
  byte_of.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    byte_of[static_cast<size_t>(is_printable_byte(byte) ? byte : next++)] = static_cast<int16_t>(byte);
  return byte_of;
}

}  // namespace

Utf8Unit utf8_unit(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {1, Utf8Unit::Kind::valid};
  LeadByte rule = classify_lead(lead);
  if (rule.tail == 0) return {1, Utf8Unit::Kind::invalid};
  for (size_t i = 1; i <= rule.tail; ++i) {
    if (at + i >= text.size()) return {i, Utf8Unit::Kind::truncated};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if (byte < rule.low || byte > rule.high) return {i, Utf8Unit::Kind::invalid};
    rule.low = 0x80;
    rule.high = 0xBF;
  }
  return {rule.tail + 1, Utf8Unit::Kind::valid};
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Unit unit = utf8_unit(text, at);
    if (unit.kind != Utf8Unit::Kind::valid) return at;
    at += unit.bytes;
  }
  return std::nullopt;
}

char32_t decode_char(std::string_view text, size_t at) {
  const size_t length = utf8_length(text[at]);
  const auto lead = static_cast<uint8_t>(text[at]);
  if (length == 1) return lead;
  char32_t c = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) c = (c << 6) | (static_cast<uint8_t>(text[at + i]) & 0x3Fu);
  return c;
}

size_t last_char_offset(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void append_char(std::string& text, char32_t c) {
  utf8proc_uint8_t buffer[4];
  const auto bytes = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  text.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(bytes));
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_char(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(known_alias(c)))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // circled and squared letters are Alphabetic symbols
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  }
}

std::string byte_to_alphabet(uint8_t byte) {
  char32_t c = byte;
  if (!is_printable_byte(byte)) {
    c = 0x100;
    for (int other = 0; other < byte; ++other) c += is_printable_byte(other) ? 0 : 1;
  }
  std::string text;
  append_char(text, c);
  return text;
}

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
  static const std::array<int16_t, kAlphabetEnd> byte_of = make_byte_of();
  std::string bytes;
  for (size_t at = 0; at < token.size(); at += utf8_length(token[at])) {
    const char32_t c = decode_char(token, at);
    if (c >= kAlphabetEnd || byte_of[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of[c]));
  }
  return bytes;
}

std::string_view alias_text(std::string_view text, std::string& buffer) {
  bool changed = false;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    if (static_cast<uint8_t>(text[at]) < 0xE0) continue;  // every alias is at U+0800 or above
    const char32_t c = decode_char(text, at);
    const char32_t alias = known_alias(c);
    if (alias == c) continue;
    if (!changed) buffer.assign(text);
    changed = true;
    std::string bytes;
    append_char(bytes, alias);
    CHECK(bytes.size() == utf8_length(text[at]), "alias of U+{:04X} has another length", uint32_t{c});
    buffer.replace(at, bytes.size(), bytes);
  }
  return changed ? std::string_view(buffer) : text;
}

}  // namespace temper
