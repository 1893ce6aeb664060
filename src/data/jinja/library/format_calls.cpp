// str.format and the `%` operator.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "src/core/check.h"
#include "src/data/jinja/library/format_specs.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

/// One call of str.format.
class Fields {
 public:
  Fields(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments), named_(arguments.named.begin(), arguments.named.end()) {}

  std::string format(std::string_view text, int depth) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      add(out, text.substr(at, brace - at));
      if (brace == text.size()) break;
      at = brace + 1;
      if (at < text.size() && text[at] == text[brace]) {
        out += text[at++];
        continue;
      }
      if (text[brace] == '}') runtime_.fail("a single `}` in a format");
      const size_t end = field_end(text, at);
      add(out, field(text.substr(at, end - at), depth));
      at = end + 1;
    }
    return out;
  }

 private:
  void add(std::string& out, std::string_view part) {
    runtime_.reserve(part.size());
    out += part;
  }

  size_t field_end(std::string_view text, size_t at) const {
    int open = 1;
    for (; at < text.size(); ++at) {
      open += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    runtime_.fail("a `{` in a format has no `}`");
  }

  /// name[!conversion][:spec]
  std::string field(std::string_view text, int depth) {
    runtime_.work();
    if (depth == 0) runtime_.fail("formats inside each other");
    size_t end = 0;
    for (bool bracket = false; end < text.size(); ++end) {
      bracket = text[end] == '[' || (bracket && text[end] != ']');
      if (!bracket && (text[end] == '!' || text[end] == ':')) break;
    }
    const std::string_view name = text.substr(0, end);
    if (name.find_first_of("{}") != std::string_view::npos) runtime_.fail("a brace in the name of a field");
    Value value = find(name);
    text.remove_prefix(end);
    if (take(text, '!')) {
      if (text.empty() || (text[0] != 's' && text[0] != 'r') || (text.size() > 1 && text[1] != ':'))
        runtime_.fail("of the conversions of a format only !s and !r are supported");
      value = runtime_.keep(text[0] == 'r' ? to_repr(runtime_, value) : to_text(runtime_, value));
      text.remove_prefix(1);
    }
    take(text, ':');
    return format_value(runtime_, value, format(text, depth - 1));
  }

  Value find(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end), end == name.size());
    name.remove_prefix(end);
    while (!name.empty()) {
      runtime_.work();
      if (take(name, '.')) {
        const size_t next = std::min(name.find_first_of(".["), name.size());
        if (next == 0) runtime_.fail("an empty attribute in a format");
        if (name.starts_with("__")) runtime_.fail("a format reaches for an attribute that is not accessible");
        value = get_attribute(runtime_, value, name.substr(0, next));
        name.remove_prefix(next);
        continue;
      }
      const size_t close = name.find(']');
      if (!take(name, '[') || close == std::string_view::npos || close == 1)
        runtime_.fail("a subscript in a format that is not [name]");
      const std::string_view key = name.substr(0, close - 1);
      const bool number = key.find_first_not_of("0123456789") == std::string_view::npos;
      const auto index = number ? parse_integer(key, 10) : std::nullopt;
      value = get_item(runtime_, value, index ? Value(*index) : Value(key));
      name.remove_prefix(close);
    }
    return value;
  }

  /// The argument that a field names, by its place or its keyword.
  Value first(std::string_view name, bool whole) {
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (name.empty() && !whole) runtime_.fail("a field of a format without the name of an argument");
    if (whole && (number || name.empty())) {
      if (numbered_ && *numbered_ != number) runtime_.fail("numbered and unnumbered fields in one format");
      numbered_ = number;
    }
    if (name.empty() || number) {
      const auto index = name.empty() ? next_++ : parse_integer(name, 10).value_or(-1);
      if (index < 0 || index >= static_cast<int64_t>(arguments_.positional.size()))
        runtime_.fail(fmt::format("a format wants more than its {} values", arguments_.positional.size()));
      return arguments_.positional[static_cast<size_t>(index)];
    }
    if (const auto found = named_.find(name); found != named_.end()) return found->second;
    runtime_.fail(fmt::format("a format wants a value named `{}`", name.substr(0, 60)));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  const std::unordered_map<std::string_view, Value> named_;
  int64_t next_ = 0;
  std::optional<bool> numbered_;
};

/// The values of a `%` format, one after the other or by name.
class PercentValues {
 public:
  PercentValues(Runtime& runtime, const Value& values) : runtime_(runtime), values_(values) {
    auto* const* s = std::get_if<Sequence*>(&values);
    if (s && (*s)->form == Form::tuple) tuple_ = *s;
  }

  Value next(std::string_view name, bool named) {
    auto* const* dict = std::get_if<Dict*>(&values_);
    if (named) {
      if (!dict) runtime_.fail("a `%` format with names wants a mapping");
      const Value* value = find(runtime_, **dict, name);
      if (!value) runtime_.fail(fmt::format("a `%` format wants a value named `{}`", name.substr(0, 60)));
      return *value;
    }
    if (used_ >= (tuple_ ? tuple_->items.size() : 1)) runtime_.fail("not enough values for the `%` format");
    return tuple_ ? tuple_->items[used_++] : (++used_, values_);
  }

  void finish() const {
    const size_t count = tuple_ ? tuple_->items.size() : is<Dict*>(values_) ? used_ : 1;
    if (used_ < count) runtime_.fail("not all values are used by the `%` format");
  }

 private:
  Runtime& runtime_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  size_t used_ = 0;
};

/// One value of a `%` format: `rest` begins behind its name and ends up behind its type.
FormatSpec parse_percent(Runtime& runtime, std::string_view& rest) {
  FormatSpec spec{.align = '>'};
  bool zeros = false;
  for (bool flag = true; flag;) {
    flag = true;
    if (take(rest, '-'))
      spec.align = '<';
    else if (take(rest, '+'))
      spec.sign = '+';
    else if (take(rest, ' '))
      spec.sign = spec.sign == '+' ? '+' : ' ';
    else if (take(rest, '0'))
      zeros = true;
    else
      flag = false;
  }
  take_width(runtime, rest, spec);
  take_precision(runtime, rest, spec);
  if (rest.empty()) runtime.fail("a `%` format without its type");
  spec.type = rest[0];
  rest.remove_prefix(1);
  if (zeros && spec.align == '>' && spec.type != 's' && spec.type != 'r') {
    spec.fill = "0";
    spec.align = '=';
  }
  return spec;
}

std::string format_one(Runtime& runtime, FormatSpec spec, const Value& value) {
  const char type = spec.type;
  if (type == 's' || type == 'r') {
    spec.type = 's';
    spec.sign = '-';
    return format_text(runtime, spec, type == 's' ? to_text(runtime, value) : to_repr(runtime, value));
  }
  if (const auto* big = std::get_if<BigInteger>(&value);
      big && (type == 'd' || type == 'i') && spec.width == 0)
    return std::string(big->digits);
  const auto x = as_real(value);
  if (type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' || type == 'o') {
    auto n = as_integer(value);
    if (!n && x && std::fabs(*x) < 9.2e18 && (type == 'd' || type == 'i' || type == 'u'))
      n = static_cast<int64_t>(*x);
    if (!n) runtime.fail(fmt::format("%{} wants an integer, not '{}'", type, type_name(value)));
    if (type == 'i' || type == 'u') spec.type = 'd';
    return format_integer(runtime, spec, *n);
  }
  if (!is_one_of(type, "eEfFgG"))
    runtime.fail("of the `%` formats only %s %r %d %i %u %x %X %o %e %f %g and %% are supported");
  if (!x) runtime.fail(fmt::format("%{} wants a number, not '{}'", type, type_name(value)));
  return format_float(runtime, spec, *x);
}

}  // namespace

Value format_fields(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  runtime.handle(16 * format.size());
  return runtime.keep(Fields(runtime, arguments).format(format, 2));
}

Value format_percent(Runtime& runtime, std::string_view format, const Value& values) {
  runtime.handle(16 * format.size());
  PercentValues given(runtime, values);
  std::string out;
  while (!format.empty()) {
    const size_t percent = std::min(format.find('%'), format.size());
    out += format.substr(0, percent);
    format.remove_prefix(percent);
    if (!take(format, '%')) break;
    if (take(format, '%')) {
      out += '%';
      continue;
    }
    std::string_view name;
    const bool named = take(format, '(');
    if (named) {
      const size_t close = format.find(')');
      if (close == std::string_view::npos) runtime.fail("a `%` format with a name that does not end");
      name = format.substr(0, close);
      format.remove_prefix(close + 1);
    }
    const FormatSpec spec = parse_percent(runtime, format);
    const std::string text = format_one(runtime, spec, given.next(name, named));
    runtime.work();
    runtime.reserve(text.size());
    out += text;
  }
  given.finish();
  return runtime.keep(std::move(out));
}

}  // namespace temper::jinja
