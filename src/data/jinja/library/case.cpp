// Upper and lower case as Python's str has it: one character may become several, and a sigma at the end of a
// word has a form of its own. What begins a word in such a way (title, capitalize) is refused.
#include <utf8proc.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2, kDottedI = 0x130;

struct Upper {
  char32_t from;
  char32_t to[3];  // 0: none
};
/// The characters whose upper case is several, ascending (SpecialCasing.txt of Unicode, without conditions).
constexpr Upper kUpper[] = {
    {0xDF, {0x53, 0x53}},
    {0x149, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1E96, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1F80, {0x1F08, 0x399}},
    {0x1F81, {0x1F09, 0x399}},
    {0x1F82, {0x1F0A, 0x399}},
    {0x1F83, {0x1F0B, 0x399}},
    {0x1F84, {0x1F0C, 0x399}},
    {0x1F85, {0x1F0D, 0x399}},
    {0x1F86, {0x1F0E, 0x399}},
    {0x1F87, {0x1F0F, 0x399}},
    {0x1F88, {0x1F08, 0x399}},
    {0x1F89, {0x1F09, 0x399}},
    {0x1F8A, {0x1F0A, 0x399}},
    {0x1F8B, {0x1F0B, 0x399}},
    {0x1F8C, {0x1F0C, 0x399}},
    {0x1F8D, {0x1F0D, 0x399}},
    {0x1F8E, {0x1F0E, 0x399}},
    {0x1F8F, {0x1F0F, 0x399}},
    {0x1F90, {0x1F28, 0x399}},
    {0x1F91, {0x1F29, 0x399}},
    {0x1F92, {0x1F2A, 0x399}},
    {0x1F93, {0x1F2B, 0x399}},
    {0x1F94, {0x1F2C, 0x399}},
    {0x1F95, {0x1F2D, 0x399}},
    {0x1F96, {0x1F2E, 0x399}},
    {0x1F97, {0x1F2F, 0x399}},
    {0x1F98, {0x1F28, 0x399}},
    {0x1F99, {0x1F29, 0x399}},
    {0x1F9A, {0x1F2A, 0x399}},
    {0x1F9B, {0x1F2B, 0x399}},
    {0x1F9C, {0x1F2C, 0x399}},
    {0x1F9D, {0x1F2D, 0x399}},
    {0x1F9E, {0x1F2E, 0x399}},
    {0x1F9F, {0x1F2F, 0x399}},
    {0x1FA0, {0x1F68, 0x399}},
    {0x1FA1, {0x1F69, 0x399}},
    {0x1FA2, {0x1F6A, 0x399}},
    {0x1FA3, {0x1F6B, 0x399}},
    {0x1FA4, {0x1F6C, 0x399}},
    {0x1FA5, {0x1F6D, 0x399}},
    {0x1FA6, {0x1F6E, 0x399}},
    {0x1FA7, {0x1F6F, 0x399}},
    {0x1FA8, {0x1F68, 0x399}},
    {0x1FA9, {0x1F69, 0x399}},
    {0x1FAA, {0x1F6A, 0x399}},
    {0x1FAB, {0x1F6B, 0x399}},
    {0x1FAC, {0x1F6C, 0x399}},
    {0x1FAD, {0x1F6D, 0x399}},
    {0x1FAE, {0x1F6E, 0x399}},
    {0x1FAF, {0x1F6F, 0x399}},
    {0x1FB2, {0x1FBA, 0x399}},
    {0x1FB3, {0x391, 0x399}},
    {0x1FB4, {0x386, 0x399}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}},
    {0x1FBC, {0x391, 0x399}},
    {0x1FC2, {0x1FCA, 0x399}},
    {0x1FC3, {0x397, 0x399}},
    {0x1FC4, {0x389, 0x399}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}},
    {0x1FCC, {0x397, 0x399}},
    {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}},
    {0x1FF3, {0x3A9, 0x399}},
    {0x1FF4, {0x38F, 0x399}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}},
    {0x1FFC, {0x3A9, 0x399}},
    {0xFB00, {0x46, 0x46}},
    {0xFB01, {0x46, 0x49}},
    {0xFB02, {0x46, 0x4C}},
    {0xFB03, {0x46, 0x46, 0x49}},
    {0xFB04, {0x46, 0x46, 0x4C}},
    {0xFB05, {0x53, 0x54}},
    {0xFB06, {0x53, 0x54}},
    {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},
    {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},
    {0xFB17, {0x544, 0x53D}},
};

const Upper* special_upper(char32_t c) {
  const auto* entry = std::lower_bound(std::begin(kUpper), std::end(kUpper), c,
                                       [](const Upper& e, char32_t code) { return e.from < code; });
  return entry != std::end(kUpper) && entry->from == c ? entry : nullptr;
}

/// Characters that begin a word with several characters, or with one that is neither upper nor lower case.
bool has_special_title(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x130, 0x130},   {0x1C4, 0x1CC},   {0x1F0, 0x1F3},   {0x10D0, 0x10FF},
      {0x1C90, 0x1CBF}, {0x1E9E, 0x1E9E}, {0x1F80, 0x1FAF}, {0x1FBC, 0x1FBC}};
  return special_upper(c) || std::any_of(std::begin(kRanges), std::end(kRanges), [c](const auto& range) {
           return c >= range.first && c <= range.second;
         });
}

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) {
  const auto category = category_of(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || c == 0xAA || c == 0xBA || (c >= 0x2160 && c <= 0x217F) ||
         (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

/// What does not end a word: marks, apostrophes and the like.
bool is_case_ignorable(char32_t c) {
  static constexpr char32_t kInWords[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                          0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                          0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  const auto category = category_of(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
         category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
         category == UTF8PROC_CATEGORY_SK ||
         std::find(std::begin(kInWords), std::end(kInWords), c) != std::end(kInWords);
}

/// Whether a letter stands before the sigma at [begin, end) of its word, and none behind it.
bool ends_word(Runtime& runtime, std::string_view text, size_t begin, size_t end) {
  bool before = false;
  while (begin > 0) {
    runtime.work();
    size_t at = begin - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    begin = at;
    const char32_t c = next_code_point(text, at);
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  while (before && end < text.size()) {
    runtime.work();
    const char32_t c = next_code_point(text, end);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return before;
}

void append_upper(std::string& out, char32_t c) {
  if (const Upper* special = special_upper(c)) {
    for (const char32_t part : special->to)
      if (part != 0) append_code_point(out, part);
    return;
  }
  append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

[[noreturn]] void fail_case(Runtime& runtime, char32_t c) {
  std::string shown;
  append_code_point(shown, c);
  runtime.fail(fmt::format("a capital `{}` at the start of a word is not supported", shown));
}

}  // namespace

std::string change_case(Runtime& runtime, std::string_view text, Case to) {
  runtime.handle(16 * text.size());
  std::string out;
  bool first = true;  // of the text (capitalize) or of a word (title)
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const auto code = static_cast<utf8proc_int32_t>(c);
    const auto category = category_of(c);
    // Modifier letters (and some like them) belong to words in a way of their own.
    const bool modifier =
        category == UTF8PROC_CATEGORY_LM || c == 0xAA || c == 0xBA || (c >= 0x1F130 && c <= 0x1F189);
    const bool begins = to != Case::upper && to != Case::lower && first;
    if ((begins && has_special_title(c)) || (to == Case::title && modifier)) fail_case(runtime, c);
    if (to == Case::upper || begins) {
      append_upper(out, c);
    } else if (c == kDottedI) {
      out += "i\u0307";
    } else if (c == kSigma && ends_word(runtime, text, begin, at)) {
      append_code_point(out, kFinalSigma);
    } else {
      append_code_point(out, static_cast<char32_t>(utf8proc_tolower(code)));
    }
    const bool cased = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
                       category == UTF8PROC_CATEGORY_LT || utf8proc_toupper(code) != code ||
                       utf8proc_tolower(code) != code;
    first = to == Case::title && !cased;
  }
  return out;
}

}  // namespace temper::jinja
