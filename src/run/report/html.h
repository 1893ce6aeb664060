#pragma once
// Text as HTML: whatever it holds, it is shown and never read as markup.

#include <string>
#include <string_view>

namespace temper {

/// For the content of elements and for attribute values in double quotes. Control characters, those that turn
/// the direction of writing, and bytes that are no UTF-8 are shown as printable() shows them.
std::string html(std::string_view text);

/// At most `bytes` of it, whole characters, and how many bytes were left out.
std::string html_of_at_most(std::string_view text, size_t bytes);

}  // namespace temper
