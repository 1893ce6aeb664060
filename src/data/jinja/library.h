#pragma once
// What a template can call: operators, subscripts, attributes, filters, tests, methods of Python's types and
// the global functions. Each does what its namesake in Jinja2 or Python does for the argument types it takes,
// and fails for the others. Names that are not in the tables are refused when the template is parsed or,
// behind an `if`, applied (filters and tests), or when they are looked up (methods).

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/jinja/ast.h"
#include "src/data/jinja/value.h"

namespace temper::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

/// Arguments in the order of `names`, null where none was given; fails when one of the first `required` is
/// missing or one is too many. Points into `arguments`, which must stay.
class Bound {
 public:
  Bound(Runtime& runtime, std::string_view callee, const Arguments& arguments,
        std::initializer_list<std::string_view> names, size_t required = 0);

  const Value* operator[](size_t i) const { return values_[i]; }
  /// Not there, or none.
  bool empty(size_t i) const { return !values_[i] || is<None>(*values_[i]); }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const { return values_[i] ? truthy(*values_[i]) : otherwise; }
  std::string_view text(size_t i, std::string_view otherwise = {}) const;

 private:
  Runtime& runtime_;
  std::string_view callee_;
  std::vector<const Value*> values_;
};

struct Filter {
  std::string_view name;
  Value (*apply)(Runtime&, const Value&, const Arguments&);
};
struct Test {
  std::string_view name;
  bool (*apply)(Runtime&, const Value&, const Arguments&);
};
const Filter* find_filter(std::string_view name);
const Filter* find_list_filter(std::string_view name);  // those over sequences, in a file of their own
const Test* find_test(std::string_view name);
/// Names that Jinja2 has, whether they are in the tables or not.
bool is_jinja_filter(std::string_view name);
bool is_jinja_test(std::string_view name);

Value binary(Runtime& runtime, Op op, const Value& a, const Value& b);
Value negate(Runtime& runtime, const Value& value, bool keep_sign);
bool compare(Runtime& runtime, Op op, const Value& a, const Value& b);
/// Text of the `%` operator between a format and its values.
Value format_percent(Runtime& runtime, std::string_view format, const Value& values);
/// str.format.
Value format_fields(Runtime& runtime, std::string_view format, const Arguments& arguments);

/// object.name, object[key], object[start:stop:step] (none: not given).
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);

/// A method that get_attribute found.
Value call_method(Runtime& runtime, const Method& method, const Arguments& arguments);
Value call_text_method(Runtime& runtime, std::string_view self, std::string_view name,
                       const Arguments& arguments);
bool has_text_method(std::string_view name);
/// nullopt when no function has that name.
std::optional<Function> find_function(std::string_view name);
Value call_function(Runtime& runtime, Function function, const Arguments& arguments);

enum class Case : uint8_t { upper, lower, capitalize, title };
std::string change_case(Runtime& runtime, std::string_view text, Case to);
/// For HTML; text marked safe stays as it is.
std::string escape_html(Runtime& runtime, const Value& value);
/// A text, or each of a list of texts, marked safe.
Value mark_safe(Runtime& runtime, const Value& value);
/// str.replace; count < 0: all.
Value replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to,
                   int64_t count);
/// Joins texts; fails when one is not a text and `convert` is false.
Value join_texts(Runtime& runtime, std::string_view between, const std::vector<Value>& items, bool convert);
/// `text` between so many times `fill`.
std::string pad(Runtime& runtime, std::string_view text, std::string_view fill, int64_t left, int64_t right);
/// The text of a str; fails for any other value.
std::string_view plain_text(Runtime& runtime, const Value& value, std::string_view user);

}  // namespace temper::jinja
