#pragma once
// Values of a template while it renders. Lists, mappings and texts cannot be changed by a template, so a
// value is small and copied freely: texts are views, containers are pointers, and both live in the Runtime
// (or in the syntax tree) until rendering ends. Only namespaces, loops and one-shot iterators have state.

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/core/json.h"

namespace temper::jinja {

class Runtime;
struct Sequence;
struct Dict;
struct Namespace;
struct Loop;
struct Macro;
struct Method;
struct Cycler;
struct Joiner;

/// What a missing variable (owner null) or attribute (owner: type of the object) gives; owner "": name is a
/// sentence.
struct Undefined {
  const char* owner = nullptr;
  std::string_view name;
};
struct None {};
/// Text that went through the filter `safe` or `e`: what other text is joined to it with `+` is escaped for
/// HTML, and parts of it are such text again.
struct Markup {
  std::string_view text;
};
/// An int beyond 64 bits: it can be printed and compared, nothing else.
struct BigInteger {
  std::string_view digits;
};
enum class Function : uint8_t { range, dict, make_namespace, raise_exception, strftime_now, cycler, joiner };

using Value = std::variant<Undefined, None, bool, int64_t, double, std::string_view, Markup, Sequence*, Dict*,
                           Namespace*, Loop*, Macro*, Method*, Function, BigInteger, Cycler*, Joiner*>;

enum class Form : uint8_t { list, tuple, range, keys, values, items, iterator };
struct Sequence {
  Form form;
  std::vector<Value> items;
  size_t next = 0;     // of an iterator: what lies before was consumed
  bool group = false;  // a tuple whose items are found under `grouper` and `list`, too
};
/// A `cycler`, which gives its items in turn.
struct Cycler {
  std::vector<Value> items;
  size_t at = 0;
};
/// A `joiner`, which gives nothing at first and then `between`.
struct Joiner {
  std::string_view between;
  bool used = false;
};
/// A method of `self`, not called yet.
struct Method {
  Value self;
  std::string_view name;
};

template <typename T>
bool is(const Value& value) {
  return std::holds_alternative<T>(value);
}

/// Name of the type as Python says it.
const char* type_name(const Value& value);
/// Text, marked safe or not.
std::optional<std::string_view> as_text(const Value& value);
/// int or bool.
std::optional<int64_t> as_integer(const Value& value);
/// int, bool or float.
std::optional<double> as_real(const Value& value);
/// The object's address if it has one: what `is sameas` compares.
const void* address_of(const Value& value);

bool truthy(const Value& value);
bool equals(Runtime& runtime, const Value& a, const Value& b, int depth = 0);
/// `symbol` is the operator of an error message. Unordered only with NaN.
std::partial_ordering order(Runtime& runtime, const char* symbol, const Value& a, const Value& b,
                            int depth = 0);
/// len(); nullopt when Python raises.
std::optional<int64_t> length_of(const Value& value);
bool is_iterable(const Value& value);
/// All items that iteration gives; consumes an iterator.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
bool contains(Runtime& runtime, const Value& container, const Value& needle);
/// Null: the mapping has no such key.
const Value* find(Runtime& runtime, Dict& dict, const Value& key);
/// Fails for values that Python cannot hash.
void check_hashable(Runtime& runtime, const Value& key, int depth = 0);

Value from_json(Runtime& runtime, const Json& json, int depth = 0);

/// str() and repr().
std::string to_text(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace temper::jinja
