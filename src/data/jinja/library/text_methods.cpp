// Methods of texts.
#include <algorithm>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

/// Where the last word of a text without white space at its end begins.
size_t last_word(std::string_view text) {
  size_t word = text.size();
  while (word > 0) {
    size_t begin = word - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t at = begin;
    if (is_space(next_code_point(text, at))) break;
    word = begin;
  }
  return word;
}

using Parts = std::vector<std::string_view>;

Parts split_space(Runtime& runtime, std::string_view text, int64_t most, bool from_right) {
  Parts parts;
  const auto space_at = [&](size_t at) { return is_space(next_code_point(text, at)); };
  text = strip_space(text, {.left = !from_right, .right = from_right});
  while (!text.empty()) {
    runtime.work(2);
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t cut = 0;
    if (from_right) {
      cut = last_word(text);
      parts.push_back(text.substr(cut));
      text = strip_space(text.substr(0, cut), {.left = false});
    } else {
      while (cut < text.size() && !space_at(cut)) next_code_point(text, cut);
      parts.push_back(text.substr(0, cut));
      text = strip_space(text.substr(cut), {.right = false});
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts split_at(Runtime& runtime, std::string_view text, std::string_view separator, int64_t most,
               bool from_right) {
  Parts parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    runtime.work(2);
    if (from_right && separator.size() > 1)
      runtime.handle(16 * text.size());  // every search takes the whole rest
    const size_t at = from_right ? find_last(text, separator) : find_first(text, separator);
    if (at == std::string_view::npos) break;
    const std::string_view left = text.substr(0, at), right = text.substr(at + separator.size());
    parts.push_back(from_right ? right : left);
    text = from_right ? left : right;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value list_of(Runtime& runtime, const Parts& parts) { return runtime.list({parts.begin(), parts.end()}); }

Value split(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const bool from_right = name == "rsplit";
  const Bound bound(runtime, name, arguments, {"sep", "maxsplit"});
  const int64_t most = bound.integer(1, -1);
  if (bound.empty(0)) return list_of(runtime, split_space(runtime, self, most, from_right));
  const auto separator = bound.text(0);
  if (separator.empty()) runtime.fail("the separator of `split` is empty");
  return list_of(runtime, split_at(runtime, self, separator, most, from_right));
}

Value strip(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"chars"});
  const Sides sides{.left = name != "rstrip", .right = name != "lstrip"};
  if (bound.empty(0)) return strip_space(self, sides);
  runtime.handle(16 * (self.size() + bound.text(0).size()));
  return strip_any(self, bound.text(0), sides);
}

/// startswith, endswith: one text or a tuple of them.
Value has_affix(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"prefix"}, 1);
  const auto matches = [&](const Value& affix) {
    const auto text = plain_text(runtime, affix, name);
    runtime.handle(text.size());
    return name == "startswith" ? self.starts_with(text) : self.ends_with(text);
  };
  auto* const* tuple = std::get_if<Sequence*>(bound[0]);
  if (!tuple || (*tuple)->form != Form::tuple) return matches(*bound[0]);
  return std::any_of((*tuple)->items.begin(), (*tuple)->items.end(), matches);
}

Value remove_affix(Runtime& runtime, std::string_view self, std::string_view name,
                   const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"affix"}, 1);
  const auto affix = bound.text(0);
  if (name == "removeprefix") return self.starts_with(affix) ? self.substr(affix.size()) : self;
  return self.ends_with(affix) ? self.substr(0, self.size() - affix.size()) : self;
}

Value find_text(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"sub"}, 1);
  runtime.handle(16 * (self.size() + bound.text(0).size()));
  const size_t at = name[0] == 'r' ? find_last(self, bound.text(0)) : find_first(self, bound.text(0));
  if (at != std::string_view::npos) return count_code_points(self.substr(0, at));
  if (name.ends_with("index")) runtime.fail("`index` did not find the text");
  return int64_t{-1};
}

Value count_text(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"sub"}, 1);
  const auto part = bound.text(0);
  runtime.handle(16 * (self.size() + part.size()));
  if (part.empty()) return count_code_points(self) + 1;
  int64_t count = 0;
  for (size_t at = find_first(self, part); at != std::string_view::npos;) {
    runtime.work();
    ++count;
    at = find_first(self, part, at + part.size());
  }
  return count;
}

/// isdigit, isdecimal, isalpha, isalnum, isspace: not empty, and all characters are such.
Value all_such(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {});
  runtime.handle(32 * self.size());
  bool all = !self.empty();
  for (size_t at = 0; at < self.size() && all;) {
    const char32_t c = next_code_point(self, at);
    const bool digits = name == "isdigit" || name == "isdecimal";
    if (digits && c >= 0x80) runtime.fail(fmt::format("`{}` is supported for ASCII text only", name));
    all = digits              ? c >= '0' && c <= '9'
          : name == "isspace" ? is_space(c)
          : name == "isalnum" ? is_word(c) && c != '_'
                              : is_letter(c);
  }
  return all;
}

/// islower, isupper: a letter of that case, and none of the other.
Value has_case(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {});
  bool lower = false, upper = false;
  for (const char c : self) {
    if (static_cast<unsigned char>(c) >= 0x80)
      runtime.fail(fmt::format("`{}` is supported for ASCII text only", name));
    lower |= c >= 'a' && c <= 'z';
    upper |= c >= 'A' && c <= 'Z';
  }
  return name == "islower" ? lower && !upper : upper && !lower;
}

Value changed_case(Runtime& runtime, std::string_view self, std::string_view name,
                   const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {});
  const Case to = name == "upper"   ? Case::upper
                  : name == "lower" ? Case::lower
                  : name == "title" ? Case::title
                                    : Case::capitalize;
  return runtime.keep(change_case(runtime, self, to));
}

Value replace_method(Runtime& runtime, std::string_view self, std::string_view name,
                     const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"old", "new", "count"}, 2);
  return replace_text(runtime, self, bound.text(0), bound.text(1), bound.integer(2, -1));
}

Value join_method(Runtime& runtime, std::string_view self, std::string_view name,
                  const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"iterable"}, 1);
  return join_texts(runtime, self, iterate(runtime, *bound[0]), false);
}

Value lines_method(Runtime& runtime, std::string_view self, std::string_view name,
                   const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"keepends"});
  runtime.handle(32 * self.size());
  runtime.reserve(16 * self.size());  // where every character ends a line
  return list_of(runtime, split_lines(self, bound.flag(0, false)));
}

Value is_ascii(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {});
  return std::all_of(self.begin(), self.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// partition, rpartition: what stands before a separator, the separator, what follows.
Value partition(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"sep"}, 1);
  const auto separator = bound.text(0);
  if (separator.empty()) runtime.fail(fmt::format("the separator of `{}` is empty", name));
  runtime.handle(16 * (self.size() + separator.size()));
  const bool last = name == "rpartition";
  const size_t at = last ? find_last(self, separator) : find_first(self, separator);
  const std::string_view none;
  if (at == std::string_view::npos)
    return runtime.sequence(Form::tuple, {last ? none : self, none, last ? self : none});
  return runtime.sequence(Form::tuple, {self.substr(0, at), separator, self.substr(at + separator.size())});
}

/// center, ljust, rjust.
Value justify(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"width", "fillchar"}, 1);
  const std::string_view fill = bound.text(1, " ");
  if (count_code_points(fill) != 1) runtime.fail(fmt::format("`{}` fills with one character", name));
  const int64_t width = bound.integer(0, 0), padding = std::max<int64_t>(width - count_code_points(self), 0);
  const int64_t left = name == "ljust" ? 0 : name == "rjust" ? padding : padding / 2 + (padding & width & 1);
  return runtime.keep(pad(runtime, self, fill, left, padding - left));
}

/// Zeros between the sign and the rest.
Value zfill(Runtime& runtime, std::string_view self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {"width"}, 1);
  const size_t sign = !self.empty() && (self[0] == '-' || self[0] == '+') ? 1 : 0;
  const int64_t zeros = std::max<int64_t>(bound.integer(0, 0) - count_code_points(self), 0);
  return runtime.keep(std::string(self.substr(0, sign)) + pad(runtime, self.substr(sign), "0", zeros, 0));
}

Value format_method(Runtime& runtime, std::string_view self, std::string_view, const Arguments& arguments) {
  return format_fields(runtime, self, arguments);
}

struct TextMethod {
  std::string_view name;
  Value (*apply)(Runtime&, std::string_view, std::string_view, const Arguments&);
};
constexpr TextMethod kTextMethods[] = {
    {"split", split},
    {"rsplit", split},
    {"strip", strip},
    {"lstrip", strip},
    {"rstrip", strip},
    {"replace", replace_method},
    {"join", join_method},
    {"splitlines", lines_method},
    {"startswith", has_affix},
    {"endswith", has_affix},
    {"removeprefix", remove_affix},
    {"removesuffix", remove_affix},
    {"find", find_text},
    {"rfind", find_text},
    {"index", find_text},
    {"rindex", find_text},
    {"count", count_text},
    {"upper", changed_case},
    {"lower", changed_case},
    {"title", changed_case},
    {"capitalize", changed_case},
    {"isdigit", all_such},
    {"isalpha", all_such},
    {"isspace", all_such},
    {"isalnum", all_such},
    {"isdecimal", all_such},
    {"isascii", is_ascii},
    {"partition", partition},
    {"rpartition", partition},
    {"center", justify},
    {"ljust", justify},
    {"rjust", justify},
    {"zfill", zfill},
    {"format", format_method},
    {"islower", has_case},
    {"isupper", has_case},
};

const TextMethod* find_text_method(std::string_view name) {
  const auto* entry = std::find_if(std::begin(kTextMethods), std::end(kTextMethods),
                                   [&](const auto& m) { return m.name == name; });
  return entry == std::end(kTextMethods) ? nullptr : entry;
}

}  // namespace

bool has_text_method(std::string_view name) { return find_text_method(name) != nullptr; }

Value call_text_method(Runtime& runtime, std::string_view self, std::string_view name,
                       const Arguments& arguments) {
  runtime.handle(4 * self.size());
  return find_text_method(name)->apply(runtime, self, name, arguments);
}

Value replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to,
                   int64_t count) {
  std::string out;
  const auto append = [&](std::string_view part) {
    runtime.reserve(part.size());
    out += part;
  };
  size_t at = 0;
  runtime.handle(4 * (text.size() + from.size()));
  for (; count != 0; --count) {
    runtime.work();
    const size_t found = find_first(text, from, at);
    if (found == std::string_view::npos) break;
    append(text.substr(at, found - at));
    append(to);
    at = found + from.size();
    if (!from.empty()) continue;
    if (at >= text.size()) return runtime.keep(std::move(out));
    const size_t begin = at;  // an empty text is found before every character and at the end
    next_code_point(text, at);
    append(text.substr(begin, at - begin));
  }
  append(text.substr(at));
  return runtime.keep(std::move(out));
}

Value join_texts(Runtime& runtime, std::string_view between, const std::vector<Value>& items, bool convert) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!convert) plain_text(runtime, items[i], "join");
    const auto text = as_text(items[i]);
    const std::string made = text ? std::string() : to_text(runtime, items[i]);
    const std::string_view part = text ? *text : std::string_view(made);
    runtime.reserve(part.size() + (i > 0 ? between.size() : 0));
    if (i > 0) out += between;
    out += part;
  }
  return runtime.keep(std::move(out));
}

std::string_view plain_text(Runtime& runtime, const Value& value, std::string_view user) {
  if (const auto* missing = std::get_if<Undefined>(&value)) runtime.fail_undefined(*missing);
  if (const auto text = as_text(value)) return *text;
  runtime.fail(fmt::format("`{}` wants a text, not '{}'", user, type_name(value)));
}

}  // namespace temper::jinja
