#pragma once
// Small text functions that reward functions share. ASCII only where a character class is asked for; all are
// linear in the text.

#include <algorithm>
#include <string_view>

namespace temper {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

template <typename List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// Without white space at both ends.
std::string_view strip(std::string_view text);

/// The last `count` code points (bytes that continue a UTF-8 character are not counted).
std::string_view last_code_points(std::string_view text, size_t count);

}  // namespace temper
