// The tests behind `is`.
#include <algorithm>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"

namespace temper::jinja {
namespace {

void no_arguments(Runtime& runtime, const Arguments& arguments) {
  const Bound bound(runtime, "is", arguments, {});
}

template <bool (*check)(const Value&)>
bool simple(Runtime& runtime, const Value& value, const Arguments& arguments) {
  no_arguments(runtime, arguments);
  return check(value);
}

template <Op op>
bool compared(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "is", arguments, {"other"}, 1);
  return compare(runtime, op, value, *bound[0]);
}

Value modulo(Runtime& runtime, const Value& value, const Value& by) {
  if (as_text(value)) runtime.fail("this test wants a number");
  return binary(runtime, Op::modulo, value, by);
}

template <int64_t remainder>
bool parity(Runtime& runtime, const Value& value, const Arguments& arguments) {
  no_arguments(runtime, arguments);
  return equals(runtime, modulo(runtime, value, int64_t{2}), remainder);
}

bool divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "divisibleby", arguments, {"num"}, 1);
  return equals(runtime, modulo(runtime, value, *bound[0]), int64_t{0});
}

bool same(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "sameas", arguments, {"other"}, 1);
  const Value& other = *bound[0];
  if (value.index() != other.index()) return false;
  if (address_of(value)) return address_of(value) == address_of(other);
  return !is<Undefined>(value) && equals(runtime, value, other);
}

template <bool upper>
bool cased(Runtime& runtime, const Value& value, const Arguments& arguments) {
  no_arguments(runtime, arguments);
  const auto text = to_text(runtime, value);
  return std::get<bool>(call_text_method(runtime, text, upper ? "isupper" : "islower", {}));
}

bool names_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  no_arguments(runtime, arguments);
  const auto name = as_text(value);
  return name && is_jinja_filter(*name);
}

bool names_test(Runtime& runtime, const Value& value, const Arguments& arguments) {
  no_arguments(runtime, arguments);
  const auto name = as_text(value);
  return name && is_jinja_test(*name);
}

bool is_escaped(const Value& v) { return is<Markup>(v); }
bool is_defined(const Value& v) { return !is<Undefined>(v); }
bool is_undefined(const Value& v) { return is<Undefined>(v); }
bool is_none(const Value& v) { return is<None>(v); }
bool is_string(const Value& v) { return as_text(v).has_value(); }
bool is_mapping(const Value& v) { return is<Dict*>(v); }
bool is_boolean(const Value& v) { return is<bool>(v); }
bool is_true(const Value& v) { return is<bool>(v) && std::get<bool>(v); }
bool is_false(const Value& v) { return is<bool>(v) && !std::get<bool>(v); }
bool is_integer(const Value& v) { return is<int64_t>(v) || is<BigInteger>(v); }
bool is_float(const Value& v) { return is<double>(v); }
bool is_number(const Value& v) { return as_real(v) || is<BigInteger>(v); }
bool is_callable(const Value& v) {
  return is<Function>(v) || is<Method*>(v) || is<Macro*>(v) || is<Undefined>(v) || is<Loop*>(v) ||
         is<Joiner*>(v);
}

bool is_sequence(const Value& v) {
  auto* const* s = std::get_if<Sequence*>(&v);
  return s ? (*s)->form <= Form::range : as_text(v) || is<Dict*>(v) || is<Undefined>(v);
}

constexpr Test kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"iterable", simple<is_iterable>},
    {"sequence", simple<is_sequence>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"filter", names_filter},
    {"test", names_test},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"sameas", same},
    {"upper", cased<true>},
    {"lower", cased<false>},
    {"in", compared<Op::in>},
    {"eq", compared<Op::equal>},
    {"equalto", compared<Op::equal>},
    {"==", compared<Op::equal>},
    {"ne", compared<Op::not_equal>},
    {"!=", compared<Op::not_equal>},
    {"lt", compared<Op::less>},
    {"lessthan", compared<Op::less>},
    {"<", compared<Op::less>},
    {"le", compared<Op::less_equal>},
    {"<=", compared<Op::less_equal>},
    {"gt", compared<Op::greater>},
    {"greaterthan", compared<Op::greater>},
    {">", compared<Op::greater>},
    {"ge", compared<Op::greater_equal>},
    {">=", compared<Op::greater_equal>},
};

}  // namespace

bool is_jinja_test(std::string_view name) { return find_test(name) != nullptr; }

const Test* find_test(std::string_view name) {
  const auto* test =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Test& t) { return t.name == name; });
  return test == std::end(kTests) ? nullptr : test;
}

}  // namespace temper::jinja
