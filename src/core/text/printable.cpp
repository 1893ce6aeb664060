#include "src/core/text/printable.h"

#include <spdlog/fmt/fmt.h>
#include <utf8proc.h>

namespace temper {
namespace {

bool may_be_shown(utf8proc_int32_t character) {
  const bool turns =
      (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
  const utf8proc_category_t kind = utf8proc_category(character);
  const bool control =
      kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
  return character == '\n' || character == '\t' || (!turns && !control);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    utf8proc_int32_t character = 0;
    const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &character);
    if (length <= 0)
      shown += fmt::format("\\x{:02x}", *bytes);
    else if (may_be_shown(character))
      shown += text.substr(at, static_cast<size_t>(length));
    else
      shown += character < 0x80 ? fmt::format("\\x{:02x}", character) : fmt::format("\\u{:04x}", character);
    at += length > 0 ? static_cast<size_t>(length) : 1;
  }
  return shown;
}

}  // namespace temper
