#include "src/data/jinja/value.h"

#include <algorithm>

#include "src/core/big_integer.h"
#include "src/core/check.h"
#include "src/data/jinja/ast.h"
#include "src/data/jinja/keys.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

void check_depth(Runtime& runtime, int depth) {
  if (depth > kMaxNesting) runtime.fail(fmt::format("values nested deeper than {} levels", kMaxNesting));
  runtime.work();
}

template <typename T>
T* pointer(const Value& value) {
  const auto* place = std::get_if<T*>(&value);
  return place ? *place : nullptr;
}

bool is_number(const Value& value) { return is<bool>(value) || is<int64_t>(value) || is<double>(value); }

/// 80-bit reals hold every 64-bit integer and every double.
std::partial_ordering order_numbers(const Value& a, const Value& b) {
  const auto x = as_integer(a), y = as_integer(b);
  if (x && y) return *x <=> *y;
  const auto wide = [](const Value& v) {
    const auto n = as_integer(v);
    return n ? static_cast<long double>(*n) : static_cast<long double>(std::get<double>(v));
  };
  return wide(a) <=> wide(b);
}

bool equal_sequences(Runtime& runtime, const Sequence& a, const Sequence& b, int depth) {
  if (&a == &b) return true;
  if (a.form != b.form || a.form == Form::iterator || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equals(runtime, a.items[i], b.items[i], depth + 1)) return false;
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, Dict& b, int depth) {
  if (&a == &b) return true;
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find(runtime, b, key);
    if (!other || !equals(runtime, value, *other, depth + 1)) return false;
  }
  return true;
}

}  // namespace

const char* type_name(const Value& value) {
  if (const auto* s = pointer<Sequence>(value)) {
    switch (s->form) {
      case Form::list:
        return "list";
      case Form::tuple:
        return "tuple";
      case Form::range:
        return "range";
      case Form::keys:
        return "dict_keys";
      case Form::values:
        return "dict_values";
      case Form::items:
        return "dict_items";
      case Form::iterator:
        return "generator";
    }
  }
  static constexpr const char* kNames[] = {
      "Undefined", "NoneType", "bool",   "int",      "float",
      "str",       "Markup",   "",       "dict",     "namespace",
      "loop",      "macro",    "method", "function", "int beyond 64 bits",
      "cycler",    "joiner"};
  return kNames[value.index()];
}

std::optional<std::string_view> as_text(const Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) return *text;
  if (const auto* markup = std::get_if<Markup>(&value)) return markup->text;
  return std::nullopt;
}

std::optional<int64_t> as_integer(const Value& value) {
  if (const auto* n = std::get_if<int64_t>(&value)) return *n;
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> as_real(const Value& value) {
  if (const auto* x = std::get_if<double>(&value)) return *x;
  if (const auto n = as_integer(value)) return static_cast<double>(*n);
  return std::nullopt;
}

const void* address_of(const Value& value) {
  return std::visit(
      [](const auto& v) -> const void* {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(v)>>) return v;
        return nullptr;
      },
      value);
}

bool truthy(const Value& value) {
  if (is<Undefined>(value) || is<None>(value)) return false;
  if (const auto x = as_real(value)) return *x != 0;
  if (const auto text = as_text(value)) return !text->empty();
  if (const auto length = length_of(value)) return *length != 0;
  return true;
}

bool equals(Runtime& runtime, const Value& a, const Value& b, int depth) {
  check_depth(runtime, depth);
  if (is_number(a) && is_number(b)) return order_numbers(a, b) == 0;
  const auto x = as_text(a), y = as_text(b);
  if (x && y) {
    runtime.handle(std::min(x->size(), y->size()));
    return *x == *y;
  }
  if ((is<BigInteger>(a) && is<double>(b)) || (is<double>(a) && is<BigInteger>(b)))
    runtime.fail("an integer beyond 64 bits is not compared with a float");
  if (a.index() != b.index()) return false;
  if (is<Undefined>(a) || is<None>(a)) return true;
  if (const auto* n = std::get_if<BigInteger>(&a)) return n->digits == std::get<BigInteger>(b).digits;
  if (const auto* s = pointer<Sequence>(a)) return equal_sequences(runtime, *s, *pointer<Sequence>(b), depth);
  if (const auto* d = pointer<Dict>(a)) return equal_dicts(runtime, *d, *pointer<Dict>(b), depth);
  if (is<Function>(a)) return std::get<Function>(a) == std::get<Function>(b);
  return address_of(a) == address_of(b);
}

std::partial_ordering order(Runtime& runtime, const char* symbol, const Value& a, const Value& b, int depth) {
  check_depth(runtime, depth);
  for (const Value* side : {&a, &b})
    if (const auto* missing = std::get_if<Undefined>(side)) runtime.fail_undefined(*missing);
  if (is_number(a) && is_number(b)) return order_numbers(a, b);
  const auto x = as_text(a), y = as_text(b);
  if (x && y) {
    runtime.handle(std::min(x->size(), y->size()));
    return x->compare(*y) <=> 0;  // the order of UTF-8 bytes is the order of code points
  }
  const auto* s = pointer<Sequence>(a);
  const auto* t = pointer<Sequence>(b);
  if (!s || !t || s->form != t->form || (s->form != Form::list && s->form != Form::tuple))
    runtime.fail(fmt::format("`{}` cannot compare '{}' and '{}'", symbol, type_name(a), type_name(b)));
  for (size_t i = 0; i < std::min(s->items.size(), t->items.size()); ++i)
    if (!equals(runtime, s->items[i], t->items[i], depth + 1))
      return order(runtime, symbol, s->items[i], t->items[i], depth + 1);
  return s->items.size() <=> t->items.size();
}

std::optional<int64_t> length_of(const Value& value) {
  if (const auto text = as_text(value)) return count_code_points(*text);
  if (const auto* s = pointer<Sequence>(value))
    return s->form == Form::iterator ? std::nullopt : std::optional(static_cast<int64_t>(s->items.size()));
  if (const auto* d = pointer<Dict>(value)) return static_cast<int64_t>(d->items.size());
  if (is<Undefined>(value)) return 0;
  return std::nullopt;
}

bool is_iterable(const Value& value) {
  return as_text(value) || is<Sequence*>(value) || is<Dict*>(value) || is<Undefined>(value) ||
         is<Loop*>(value);
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (const auto text = as_text(value)) {
    runtime.reserve(text->size() * sizeof(Value));
    for (size_t at = 0; at < text->size();) {
      const size_t begin = at;
      next_code_point(*text, at);
      items.emplace_back(text->substr(begin, at - begin));
    }
  } else if (auto* const* place = std::get_if<Sequence*>(&value)) {
    Sequence& s = **place;
    runtime.handle((s.items.size() - s.next) * sizeof(Value));
    items.assign(s.items.begin() + static_cast<std::ptrdiff_t>(s.next), s.items.end());
    if (s.form == Form::iterator) s.next = s.items.size();
  } else if (const auto* d = pointer<Dict>(value)) {
    runtime.handle(d->items.size() * sizeof(Value));
    for (const auto& item : d->items) items.push_back(item.first);
  } else if (!is<Undefined>(value)) {
    runtime.fail(fmt::format("a value of type '{}' cannot be iterated", type_name(value)));
  }
  return items;
}

bool contains(Runtime& runtime, const Value& container, const Value& needle) {
  if (const auto text = as_text(container)) {
    const auto part = as_text(needle);
    if (!part) runtime.fail(fmt::format("`in` a text wants a text, not '{}'", type_name(needle)));
    runtime.handle(4 * (text->size() + part->size()));
    return find_first(*text, *part) != std::string_view::npos;
  }
  if (auto* d = pointer<Dict>(container)) {
    check_hashable(runtime, needle);
    return find(runtime, *d, needle) != nullptr;
  }
  if (const auto* s = pointer<Sequence>(container); s && s->form != Form::iterator)
    return std::any_of(s->items.begin(), s->items.end(),
                       [&](const Value& item) { return equals(runtime, item, needle); });
  const auto items = iterate(runtime, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return equals(runtime, item, needle); });
}

const Value* find(Runtime& runtime, Dict& dict, const Value& key) {
  const size_t at = dict.places.find(runtime, dict.items, key);
  return at == KeyPlaces::kNone ? nullptr : &dict.items[at].second;
}

void check_hashable(Runtime& runtime, const Value& key, int depth) {
  check_depth(runtime, depth);
  const auto* s = pointer<Sequence>(key);
  const bool tuple = s && s->form == Form::tuple;
  if (is<Dict*>(key) || (s && !tuple && s->form != Form::range))
    runtime.fail(fmt::format("a value of type '{}' cannot be a key", type_name(key)));
  if (tuple)
    for (const Value& item : s->items) check_hashable(runtime, item, depth + 1);
}

Value from_json(Runtime& runtime, const Json& json, int depth) {
  check_depth(runtime, depth);
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
    case Json::value_t::binary:
      if (const auto digits = big_integer(json)) return BigInteger{runtime.keep(*digits)};
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (!valid_utf8(text)) runtime.fail("a text among the variables is not valid UTF-8");
      return runtime.keep(text);
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(runtime, item, depth + 1));
      return runtime.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, item] : json.items()) {
        if (!valid_utf8(key)) runtime.fail("a key among the variables is not valid UTF-8");
        items.emplace_back(runtime.keep(key), from_json(runtime, item, depth + 1));
      }
      return runtime.dict(std::move(items));
    }
    default:
      return None{};
  }
}

}  // namespace temper::jinja
