// Filters over one value. Those over sequences are in filters_lists.cpp.
#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

/// What a filter makes of the text of a value is marked safe if the value was.
Value keep_kind(Runtime& runtime, const Value& value, const Value& made) {
  return is<Markup>(value) ? mark_safe(runtime, made) : made;
}

void refuse_markup(Runtime& runtime, const Value& value, const char* filter) {
  if (is<Markup>(value))
    runtime.fail(fmt::format("`{}` behind `safe` or `e` is not supported (put it before)", filter));
}

template <Case to>
Value case_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "case", arguments, {});
  return keep_kind(runtime, value, runtime.keep(change_case(runtime, to_text(runtime, value), to)));
}

/// Words begin behind white space, - ( { [ and <, which is not what str.title does.
Value title(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "title", arguments, {});
  refuse_markup(runtime, value, "title");
  const std::string text = to_text(runtime, value);
  runtime.handle(32 * text.size());  // its words alone may be too short to be charged
  std::string out;
  size_t begin = 0;
  const auto add_word = [&](size_t end) {
    out += change_case(runtime, std::string_view(text).substr(begin, end - begin), Case::capitalize);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const char32_t c = next_code_point(text, at);
    if (!is_space(c) &&
        (c >= 0x80 || std::string_view("-({[<").find(static_cast<char>(c)) == std::string_view::npos))
      continue;
    add_word(here);
    out += std::string_view(text).substr(here, at - here);
    begin = at;
  }
  add_word(text.size());
  return runtime.keep(std::move(out));
}

Value trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "trim", arguments, {"chars"});
  const auto text = as_text(value);
  const auto whole = text ? *text : runtime.keep(to_text(runtime, value));
  runtime.handle(16 * whole.size());
  if (bound.empty(0)) return keep_kind(runtime, value, strip_space(whole));
  runtime.handle(16 * (whole.size() + bound.text(0).size()));
  return keep_kind(runtime, value, strip_any(whole, bound.text(0)));
}

/// The code points [0, count) of a text.
std::string_view first_code_points(std::string_view text, int64_t count) {
  size_t at = 0;
  while (count-- > 0 && at < text.size()) next_code_point(text, at);
  return text.substr(0, at);
}

Value shorten(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.integer(0, 255), leeway = bound.empty(3) ? 5 : bound.integer(3, 5);
  const std::string_view end = bound.text(2, "...");
  const int64_t end_length = count_code_points(end);
  if (length < end_length || leeway < 0)
    runtime.fail(
        fmt::format("`truncate` to {} wants an end that is no longer, and a leeway of at least 0", length));
  if (is<Undefined>(value)) return value;
  refuse_markup(runtime, value, "truncate");
  const std::string_view text = plain_text(runtime, value, "truncate");
  runtime.handle(16 * text.size());
  if (count_code_points(text) - leeway <= length) return value;
  std::string_view begin = first_code_points(text, length - end_length);
  if (!bound.flag(1, false)) begin = begin.substr(0, begin.rfind(' '));
  return runtime.keep(std::string(begin).append(end));
}

Value word_count(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "wordcount", arguments, {});
  const std::string text = to_text(runtime, value);
  runtime.handle(32 * text.size());
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word(next_code_point(text, at));
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "e", arguments, {});
  return Markup{runtime.keep(escape_html(runtime, value))};
}

/// Escapes text marked safe, too.
Value force_escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "forceescape", arguments, {});
  return Markup{runtime.keep(escape_html(runtime, runtime.keep(to_text(runtime, value))))};
}

Value center(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "center", arguments, {"width"});
  const Arguments width{.positional = {bound.integer(0, 80)}, .named = {}};
  const std::string text = to_text(runtime, value);
  return keep_kind(runtime, value, call_text_method(runtime, text, "center", width));
}

Value default_value(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "default", arguments, {"default_value", "boolean"});
  const bool missing = is<Undefined>(value) || (bound.flag(1, false) && !truthy(value));
  if (!missing) return value;
  return bound[0] ? *bound[0] : Value(std::string_view());
}

Value string(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "string", arguments, {});
  return as_text(value) ? value : Value(runtime.keep(to_text(runtime, value)));
}

Value safe(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "safe", arguments, {});
  const auto text = as_text(value);
  return Markup{text ? *text : runtime.keep(to_text(runtime, value))};
}

Value length(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "length", arguments, {});
  if (const auto text = as_text(value)) runtime.handle(text->size());
  const auto n = length_of(value);
  if (!n) runtime.fail(fmt::format("a value of type '{}' has no length", type_name(value)));
  return *n;
}

Value replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = to_text(runtime, value), from = to_text(runtime, *bound[0]),
                    to = to_text(runtime, *bound[1]);
  return replace_text(runtime, text, from, to, bound.empty(2) ? -1 : bound.integer(2, -1));
}

Value indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "indent", arguments, {"width", "first", "blank"});
  refuse_markup(runtime, value, "indent");
  std::string text(plain_text(runtime, value, "indent"));
  text += '\n';
  runtime.handle(32 * text.size());
  const bool by_text = bound[0] && as_text(*bound[0]);
  const int64_t width = by_text ? 0 : std::max<int64_t>(bound.integer(0, 4), 0);
  runtime.reserve(static_cast<size_t>(width));
  const std::string margin =
      by_text ? std::string(bound.text(0)) : std::string(static_cast<size_t>(width), ' ');
  const auto lines = split_lines(text, false);
  const bool blank = bound.flag(2, false);
  std::string out = bound.flag(1, false) ? margin : std::string();
  for (size_t i = 0; i < lines.size(); ++i) {
    runtime.reserve(lines[i].size() + margin.size() + 1);
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return runtime.keep(std::move(out));
}

Value tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ascii = bound.flag(0, false), .sort_keys = bound.flag(3, false), .indent = {}};
  if (!bound.empty(1)) {
    const bool by_text = as_text(*bound[1]).has_value();
    const int64_t width = by_text ? 0 : std::clamp<int64_t>(bound.integer(1, 0), 0, 1000);
    style.indent = by_text ? std::string(bound.text(1)) : std::string(static_cast<size_t>(width), ' ');
    style.item_separator.resize(1);  // no blank before a line end
  }
  if (!bound.empty(2)) {
    const auto separators = iterate(runtime, *bound[2]);
    if (separators.size() != 2) runtime.fail("`tojson` wants two separators");
    style.item_separator = plain_text(runtime, separators[0], "tojson");
    style.key_separator = plain_text(runtime, separators[1], "tojson");
  }
  return runtime.keep(to_json(runtime, value, style));
}

/// int() of a float; fails where it is beyond 64 bits.
int64_t truncate(Runtime& runtime, double x) {
  if (!(std::fabs(x) < 9.2e18)) runtime.fail(fmt::format("{} is beyond 64-bit integers", x));
  return static_cast<int64_t>(x);
}

Value to_int(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "int", arguments, {"default", "base"});
  const Value otherwise = bound[0] ? *bound[0] : Value(int64_t{0});
  if (const auto* missing = std::get_if<Undefined>(&value)) runtime.fail_undefined(*missing);
  if (is<BigInteger>(value)) return value;
  if (const auto n = as_integer(value)) return *n;
  std::optional<double> x = as_real(value);
  if (const auto text = as_text(value)) {
    runtime.handle(16 * text->size());
    const int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) runtime.fail("the base of `int` must be between 2 and 36");
    if (const auto n = parse_integer(*text, static_cast<int>(base))) return *n;
    x = parse_real(*text);
    if (x && std::isinf(*x)) return otherwise;
  }
  if (!x || std::isnan(*x)) return otherwise;
  return truncate(runtime, *x);
}

Value to_float(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "float", arguments, {"default"});
  if (const auto* missing = std::get_if<Undefined>(&value)) runtime.fail_undefined(*missing);
  const auto* big = std::get_if<BigInteger>(&value);
  const auto text = big ? big->digits : as_text(value);
  if (text) runtime.handle(16 * text->size());
  if (const auto x = text ? parse_real(*text) : as_real(value)) return *x;
  return bound[0] ? *bound[0] : Value(0.0);
}

Value absolute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "abs", arguments, {});
  if (const auto n = as_integer(value)) return *n < 0 ? negate(runtime, *n, false) : Value(*n);
  if (const auto* x = std::get_if<double>(&value)) return std::fabs(*x);
  runtime.fail(fmt::format("`abs` wants a number, not '{}'", type_name(value)));
}

Value round(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const auto method = bound.text(1, "common");
  if (const auto* missing = std::get_if<Undefined>(&value)) runtime.fail_undefined(*missing);
  const auto x = as_real(value);
  if (!x) runtime.fail(fmt::format("`round` wants a number, not '{}'", type_name(value)));
  if (precision < 0 || precision > 15) runtime.fail("`round` is supported for 0 to 15 digits");
  if (method == "common") {
    if (const auto n = as_integer(value)) return *n;
    // The shortest correct way: the decimal text with so many digits is rounded exactly, halves to even.
    return std::isfinite(*x) ? parse_real(fmt::format("{:.{}f}", *x, precision)).value_or(*x) : *x;
  }
  if (method != "ceil" && method != "floor") runtime.fail("the method of `round` is common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *x * scale;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  truncate(runtime, whole);      // Python goes through an integer here,
  return (whole + 0.0) / scale;  // which has no negative zero
}

Value format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  refuse_markup(runtime, value, "format");
  if (!arguments.named.empty() && !arguments.positional.empty())
    runtime.fail("`format` takes values or named values, not both");
  std::vector<std::pair<Value, Value>> named(arguments.named.begin(), arguments.named.end());
  return format_percent(
      runtime, runtime.keep(to_text(runtime, value)),
      named.empty() ? runtime.sequence(Form::tuple, arguments.positional) : runtime.dict(std::move(named)));
}

constexpr Filter kFilters[] = {
    {"abs", absolute},
    {"capitalize", case_filter<Case::capitalize>},
    {"center", center},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"e", escape},
    {"escape", escape},
    {"float", to_float},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"int", to_int},
    {"length", length},
    {"lower", case_filter<Case::lower>},
    {"replace", replace},
    {"round", round},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", shorten},
    {"upper", case_filter<Case::upper>},
    {"wordcount", word_count},
};

/// What Jinja2 has beyond kFilters and the filters over sequences.
constexpr std::string_view kUnsupported[] = {"attr",      "filesizeformat", "pprint",   "random", "striptags",
                                             "urlencode", "urlize",         "wordwrap", "xmlattr"};

}  // namespace

std::string escape_html(Runtime& runtime, const Value& value) {
  std::string text = to_text(runtime, value);
  if (is<Markup>(value)) return text;
  runtime.handle(16 * text.size());
  std::string out;
  for (const char c : text) {
    const std::string_view name = c == '&'    ? "&amp;"
                                  : c == '<'  ? "&lt;"
                                  : c == '>'  ? "&gt;"
                                  : c == '\'' ? "&#39;"
                                  : c == '"'  ? "&#34;"
                                              : "";
    if (name.empty())
      out += c;
    else
      out += name;
  }
  return out;
}

Value mark_safe(Runtime& runtime, const Value& value) {
  if (const auto text = as_text(value)) return Markup{*text};
  auto* const* s = std::get_if<Sequence*>(&value);
  if (!s) return value;
  runtime.handle((*s)->items.size() * sizeof(Value));
  std::vector<Value> items;
  for (const Value& item : (*s)->items) items.push_back(mark_safe(runtime, item));
  return runtime.sequence((*s)->form, std::move(items));
}

bool is_jinja_filter(std::string_view name) {
  return find_filter(name) ||
         std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
}

const Filter* find_filter(std::string_view name) {
  const auto* filter =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Filter& f) { return f.name == name; });
  return filter == std::end(kFilters) ? find_list_filter(name) : filter;
}

}  // namespace temper::jinja
