#include "src/data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

utf8proc_propval_t combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void decompose(char32_t c, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, std::ssize(parts),
                                             kDecompose, &boundary);
  CHECK(count > 0 && count <= std::ssize(parts), "decomposition of U+{:04X} gives {}", uint32_t{c}, count);
  out.insert(out.end(), parts, parts + count);
}

/// Orders each run of combining marks by class, keeping the order of equal ones.
void order_marks(std::vector<utf8proc_int32_t>& chars) {
  for (size_t i = 0; i < chars.size();) {
    size_t end = i;
    while (end < chars.size() && combining_class(chars[end]) != 0) ++end;
    if (end - i > 1)
      std::stable_sort(chars.begin() + static_cast<ptrdiff_t>(i), chars.begin() + static_cast<ptrdiff_t>(end),
                       [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = std::max(end, i + 1);
  }
}

/// Composes `chars`, appends them to `out` and clears them.
void flush(std::vector<utf8proc_int32_t>& chars, std::string& out) {
  order_marks(chars);
  const auto length = utf8proc_normalize_utf32(chars.data(), std::ssize(chars), kCompose);
  CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_char(out, static_cast<char32_t>(chars[static_cast<size_t>(i)]));
  chars.clear();
}

/// The only Unicode characters that change below U+0300 do so because of a character from there on.
[[noreturn]] void refuse_growth(size_t limit) {
  fail(Exit::data, {.what = "a text grows too much under the steps of a tokenizer",
                    .where = "tokenizer.json: Prepend, Replace",
                    .why = fmt::format("it gets longer than {} bytes, 16 times what it was and 1024", limit),
                    .fix = "use a tokenizer.json as its publisher wrote it"});
}

bool is_below_combining(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0xCC; });
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& buffer) {
  if (is_below_combining(text)) return text;
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> chars;
  for (size_t at = 0; at < text.size();) {
    // An ASCII character neither decomposes nor composes with what is before it, but may with what follows.
    size_t ascii = at;
    while (ascii < text.size() && static_cast<uint8_t>(text[ascii]) < 0x80) ++ascii;
    if (ascii > at) {
      flush(chars, out);
      out.append(text, at, ascii - 1 - at);
      chars.push_back(text[ascii - 1]);
      at = ascii;
      continue;
    }
    const char32_t c = decode_char(text, at);
    at += utf8_length(text[at]);
    if (is_inert(c)) {
      flush(chars, out);
      append_char(out, c);
    } else {
      decompose(c, chars);
    }
  }
  flush(chars, out);
  buffer = std::move(out);
  return buffer;
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content,
                        size_t limit) {
  std::string out;
  const auto append = [&](std::string_view piece) {
    if (out.size() + piece.size() > limit) refuse_growth(limit);
    out.append(piece);
  };
  size_t done = 0;
  for (size_t at; (at = text.find(pattern, done)) != text.npos; done = at + pattern.size()) {
    append(text.substr(done, at - done));
    append(content);
  }
  append(text.substr(done));
  return out;
}

Normalizer::Normalizer(const JsonSection& section) {
  if (!section.is_null()) read(section);
}

void Normalizer::read(const JsonSection& section) {
  const std::string type = section.type();
  if (type == "Sequence") {
    section.allow({"type", "normalizers"});
    for (const JsonSection& item : section.at("normalizers").items()) read(item);
  } else if (type == "NFC") {
    section.allow({"type"});
    steps_.push_back({Step::Kind::nfc, "", ""});
  } else if (type == "Prepend") {
    section.allow({"type", "prepend"});
    steps_.push_back({Step::Kind::prepend, "", section.at("prepend").text()});
  } else if (type == "Replace") {
    section.allow({"type", "pattern", "content"});
    const JsonSection pattern = section.at("pattern");
    pattern.allow({"String"});
    Step step{Step::Kind::replace, pattern.at("String").text(), section.at("content").text()};
    if (step.pattern.empty()) pattern.refuse("is empty");
    steps_.push_back(std::move(step));
  } else {
    section.at("type").refuse("names a normalizer that is not supported");
  }
}

bool Normalizer::prepends() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.kind == Step::Kind::prepend; });
}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  if (text.empty()) return text;
  const size_t limit = growth_limit(text.size());
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::nfc) {
      text = nfc(text, buffer);
      continue;
    }
    if (step.kind == Step::Kind::prepend && step.content.size() + text.size() > limit) refuse_growth(limit);
    std::string next = step.kind == Step::Kind::prepend
                           ? step.content + std::string(text)
                           : replace_all(text, step.pattern, step.content, limit);
    buffer = std::move(next);
    text = buffer;
  }
  return text;
}

}  // namespace temper
