#include "src/run/report/html.h"

#include "src/core/check.h"
#include "src/core/text/printable.h"

namespace temper {

std::string html(std::string_view text) {
  std::string shown;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        shown += "&amp;";
        break;
      case '<':
        shown += "&lt;";
        break;
      case '>':
        shown += "&gt;";
        break;
      case '"':
        shown += "&quot;";
        break;
      case '\'':
        shown += "&#39;";
        break;
      default:
        shown += c;
    }
  }
  return shown;
}

std::string html_of_at_most(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return html(text);
  size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return html(text.substr(0, end)) + fmt::format("<i class=cut> … {} bytes more</i>", text.size() - end);
}

}  // namespace temper
