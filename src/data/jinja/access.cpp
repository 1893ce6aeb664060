// Attributes, subscripts and slices. A key that is not there gives Undefined, as does a subscript of a type
// that has none; only an Undefined itself cannot be looked into. A slice of such a type is an error.
#include <algorithm>

#include "src/core/check.h"
#include "src/data/jinja/evaluate/macros.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool among(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Python finds these before the keys of a mapping; what they do there is not supported.
void refuse_method(Runtime& runtime, const char* type, std::string_view name, Names methods) {
  if (among(name, methods))
    runtime.fail(fmt::format("the method `{}` of a '{}' is not supported (a key of that name: use [\"{}\"])",
                             name, type, name));
}

/// What Jinja2 tells about a macro.
Value macro_attribute(Runtime& runtime, const Stmt& macro, std::string_view name) {
  if (name == "name") return macro.kind == StmtKind::macro ? Value(std::string_view(macro.text)) : None{};
  if (name == "caller") return macro.takes_caller;
  if (name == "catch_kwargs") return macro.takes_kwargs;
  if (name == "catch_varargs") return macro.takes_varargs;
  if (name != "arguments") return Undefined{.owner = "macro", .name = name};
  std::vector<Value> names;
  for (const auto& parameter : macro.parameters) names.emplace_back(std::string_view(parameter));
  return runtime.sequence(Form::tuple, std::move(names));
}

/// The method of that name, or Undefined.
Value find_method(Runtime& runtime, const Value& object, std::string_view name) {
  if (is<Dict*>(object)) {
    if (among(name, {"get", "items", "keys", "values", "copy"})) return runtime.method(object, name);
    refuse_method(runtime, "dict", name, {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"});
  } else if (as_text(object)) {
    if (has_text_method(name)) return runtime.method(object, name);
    refuse_method(runtime, "str", name,
                  {"casefold", "encode", "expandtabs", "format_map", "isidentifier", "isnumeric",
                   "isprintable", "istitle", "maketrans", "swapcase", "translate"});
  } else if (auto* const* s = std::get_if<Sequence*>(&object); s && (*s)->form <= Form::range) {
    if ((*s)->group && name == "grouper") return (*s)->items[0];
    if ((*s)->group && name == "list") return (*s)->items[1];
    if (among(name, {"index", "count"})) return runtime.method(object, name);
    if (name == "copy" && (*s)->form == Form::list) return runtime.method(object, name);
    if ((*s)->form == Form::range) refuse_method(runtime, "range", name, {"start", "stop", "step"});
    refuse_method(runtime, "list", name,
                  {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
  } else if (auto* const* cycler = std::get_if<Cycler*>(&object)) {
    if (name == "current") return (*cycler)->items[(*cycler)->at];
    if (among(name, {"next", "reset"})) return runtime.method(object, name);
    refuse_method(runtime, "cycler", name, {"items", "pos"});
  } else if (is<Joiner*>(object)) {
    refuse_method(runtime, "joiner", name, {"sep", "used"});
  } else if (as_real(object) || is<BigInteger>(object)) {
    if (name == "real") return as_integer(object) ? Value(*as_integer(object)) : object;
    refuse_method(runtime, type_name(object), name,
                  {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
                   "fromhex", "hex", "imag", "is_integer", "numerator", "to_bytes"});
  }
  return Undefined{.owner = type_name(object), .name = name};
}

Value text_at(Runtime& runtime, std::string_view text, int64_t index) {
  const auto begins = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80; };
  size_t at = index < 0 ? text.size() : 0;
  for (; index < 0 && at > 0; index += begins(at)) --at;
  for (; index > 0 && at < text.size(); --index) next_code_point(text, at);
  runtime.handle(4 * std::max(at, text.size() - at));
  if (index != 0 || at >= text.size()) return Undefined{.owner = "str", .name = "(position out of range)"};
  const size_t begin = at;
  next_code_point(text, at);
  return text.substr(begin, at - begin);
}

Value list_at(const Sequence& s, int64_t index) {
  const auto length = static_cast<int64_t>(s.items.size());
  if (index < 0) index += length;
  if (index < 0 || index >= length)
    return Undefined{.owner = s.form == Form::tuple ? "tuple" : "list", .name = "(position out of range)"};
  return s.items[static_cast<size_t>(index)];
}

struct Range {
  int64_t start, step, count;
};

/// slice.indices of Python.
Range slice_range(Runtime& runtime, int64_t length, const Value& start, const Value& stop,
                  const Value& step) {
  const int64_t stride = is<None>(step) ? 1 : *as_integer(step);
  if (stride == 0) runtime.fail("the step of a slice cannot be zero");
  const int64_t low = stride < 0 ? -1 : 0, high = stride < 0 ? length - 1 : length;
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (is<None>(bound)) return otherwise;
    int64_t n = *as_integer(bound);
    if (n < 0) n = n < -length ? low : n + length;
    return std::clamp(n, low, high);
  };
  const int64_t first = clamp(start, stride < 0 ? high : low), end = clamp(stop, stride < 0 ? low : high);
  const int64_t distance = stride < 0 ? first - end : end - first;
  if (distance <= 0) return {first, stride, 0};
  const uint64_t width = stride < 0 ? ~static_cast<uint64_t>(stride) + 1 : static_cast<uint64_t>(stride);
  return {first, stride, static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / width + 1)};
}

Value slice_text(Runtime& runtime, std::string_view text, const Value& start, const Value& stop,
                 const Value& step) {
  runtime.handle(text.size());
  const auto offsets = code_point_offsets(text);
  if (!offsets.empty()) runtime.handle(16 * text.size());
  const auto offset = [&](int64_t i) {
    return offsets.empty() ? static_cast<size_t>(i) : offsets[static_cast<size_t>(i)];
  };
  const auto length = static_cast<int64_t>(offsets.empty() ? text.size() : offsets.size() - 1);
  const Range range = slice_range(runtime, length, start, stop, step);
  if (range.count == 0) return std::string_view();
  if (range.step == 1) {
    const size_t begin = offset(range.start);
    return text.substr(begin, offset(range.start + range.count) - begin);
  }
  std::string out;
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t at = range.start + i * range.step;
    out += text.substr(offset(at), offset(at + 1) - offset(at));
  }
  return runtime.keep(std::move(out));
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (const auto* missing = std::get_if<Undefined>(&object)) runtime.fail_undefined(*missing);
  if (auto* const* space = std::get_if<Namespace*>(&object)) {
    const Value* value = (*space)->items.find(name);
    return value ? *value : Value(Undefined{.owner = "namespace", .name = name});
  }
  if (auto* const* macro = std::get_if<Macro*>(&object))
    return macro_attribute(runtime, *(*macro)->definition, name);
  const Value method = find_method(runtime, object, name);
  if (!is<Undefined>(method)) return method;
  if (auto* const* dict = std::get_if<Dict*>(&object))
    if (const Value* value = find(runtime, **dict, name)) return *value;
  return method;
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (const auto* missing = std::get_if<Undefined>(&object)) runtime.fail_undefined(*missing);
  if (auto* const* dict = std::get_if<Dict*>(&object))
    if (const Value* value = find(runtime, **dict, key)) return *value;
  if (const auto index = as_integer(key)) {
    if (const auto text = as_text(object)) {
      const Value part = text_at(runtime, *text, *index);
      return is<Markup>(object) ? mark_safe(runtime, part) : part;
    }
    if (auto* const* s = std::get_if<Sequence*>(&object); s && (*s)->form <= Form::range)
      return list_at(**s, *index);
  }
  const auto name = as_text(key);
  if (!name) {
    const bool scalar = as_real(key) || is<None>(key);
    return Undefined{.owner = type_name(object),
                     .name = scalar ? runtime.keep(to_repr(runtime, key)) : std::string_view(type_name(key))};
  }
  if (name->starts_with("__"))
    runtime.fail(fmt::format("the attribute `{}` is not accessible to templates", name->substr(0, 60)));
  return is<Namespace*>(object) ? get_attribute(runtime, object, *name) : find_method(runtime, object, *name);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (const auto* missing = std::get_if<Undefined>(&object)) runtime.fail_undefined(*missing);
  const auto text = as_text(object);
  auto* const* s = std::get_if<Sequence*>(&object);
  const bool numbers = (is<None>(start) || as_integer(start)) && (is<None>(stop) || as_integer(stop)) &&
                       (is<None>(step) || as_integer(step));
  if (!numbers || (!text && !(s && (*s)->form <= Form::range)))
    runtime.fail(numbers ? fmt::format("a value of type '{}' cannot be sliced", type_name(object))
                         : std::string("the bounds of a slice must be integers"));
  if (text) {
    const Value part = slice_text(runtime, *text, start, stop, step);
    return is<Markup>(object) ? mark_safe(runtime, part) : part;
  }
  const auto& items = (*s)->items;
  const Range range = slice_range(runtime, static_cast<int64_t>(items.size()), start, stop, step);
  std::vector<Value> out;
  runtime.handle(static_cast<size_t>(range.count) * sizeof(Value));
  for (int64_t i = 0; i < range.count; ++i)
    out.push_back(items[static_cast<size_t>(range.start + i * range.step)]);
  return runtime.sequence((*s)->form, std::move(out));
}

}  // namespace temper::jinja
