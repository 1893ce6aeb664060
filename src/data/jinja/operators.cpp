#include <cmath>
#include <limits>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

const char* symbol_of(Op op) {
  static constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_types(Runtime& runtime, Op op, const Value& a, const Value& b) {
  runtime.fail(fmt::format("`{}` does not take '{}' and '{}'", symbol_of(op), type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow(Runtime& runtime, Op op, int64_t a, int64_t b) {
  runtime.fail(fmt::format("{} {} {} is beyond 64-bit integers", a, symbol_of(op), b));
}

/// `+` with text marked safe escapes the other side.
Value add_texts(Runtime& runtime, const Value& a, const Value& b) {
  const bool marked = is<Markup>(a) || is<Markup>(b);
  const auto side = [&](const Value& value) {
    return marked && !is<Markup>(value) ? runtime.keep(escape_html(runtime, value)) : *as_text(value);
  };
  const auto x = side(a), y = side(b);
  runtime.reserve(x.size() + y.size());
  std::string sum;
  sum.reserve(x.size() + y.size());
  sum.append(x).append(y);
  const std::string_view text = runtime.keep(std::move(sum));
  return marked ? Value(Markup{text}) : Value(text);
}

const Sequence* as_list(const Value& value) {
  auto* const* s = std::get_if<Sequence*>(&value);
  return s && ((*s)->form == Form::list || (*s)->form == Form::tuple) ? *s : nullptr;
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (as_text(a) && as_text(b)) return add_texts(runtime, a, b);
  const Sequence* s = as_list(a);
  const Sequence* t = as_list(b);
  if (!s || !t || s->form != t->form) fail_types(runtime, Op::add, a, b);
  runtime.handle((s->items.size() + t->items.size()) * sizeof(Value));
  auto items = s->items;
  items.insert(items.end(), t->items.begin(), t->items.end());
  return runtime.sequence(s->form, std::move(items));
}

/// text * n or list * n.
Value repeat(Runtime& runtime, const Value& what, int64_t count) {
  const auto text = as_text(what);
  const Sequence* s = as_list(what);
  if (!text && !s) fail_types(runtime, Op::multiply, what, count);
  const auto size = static_cast<int64_t>(text ? text->size() : s->items.size() * sizeof(Value));
  count = std::max<int64_t>(count, 0);
  if (size > 0 && count > runtime.limits().memory_bytes / size)
    runtime.fail(fmt::format("repeating {} bytes {} times is over the limit of {} bytes for values", size,
                             count, runtime.limits().memory_bytes));
  runtime.reserve(static_cast<size_t>(size * count));
  if (text) {
    std::string out;
    for (int64_t i = 0; i < count && size > 0; ++i) out += *text;
    const Value made = runtime.keep(std::move(out));
    return is<Markup>(what) ? mark_safe(runtime, made) : made;
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < count && size > 0; ++i) items.insert(items.end(), s->items.begin(), s->items.end());
  return runtime.sequence(s->form, std::move(items));
}

/// Negative bases are left out: constant ones change sign in Jinja2's own code, real exponents give complex
/// numbers.
void check_base(Runtime& runtime, double base) {
  if (base < 0) runtime.fail("`**` with a negative base is not supported");
}

Value power(Runtime& runtime, int64_t base, int64_t exponent) {
  check_base(runtime, static_cast<double>(base));
  if (exponent < 0) {
    if (base == 0) runtime.fail("0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? int64_t{1} : base;
  if (exponent > 63) fail_overflow(runtime, Op::power, base, exponent);
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow(runtime, Op::power, base, exponent);
  return result;
}

Value integer_binary(Runtime& runtime, Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow(runtime, op, a, b);
      return result;
    case Op::subtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow(runtime, op, a, b);
      return result;
    case Op::multiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow(runtime, op, a, b);
      return result;
    case Op::power:
      return power(runtime, a, b);
    default:
      break;
  }
  if (b == 0) runtime.fail("division by zero");
  if (op == Op::divide) return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
  if (b == -1) return op == Op::modulo ? Value(int64_t{0}) : integer_binary(runtime, Op::subtract, 0, a);
  const int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);  // Python rounds down
  return op == Op::modulo ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
}

double floor_divide(double a, double b, double remainder) {
  const double quotient = (a - remainder) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value real_binary(Runtime& runtime, Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::subtract:
      return a - b;
    case Op::multiply:
      return a * b;
    case Op::power: {
      check_base(runtime, a);
      if (a == 0 && b < 0) runtime.fail("0 cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isfinite(a) && std::isfinite(b) && !std::isfinite(result))
        runtime.fail(fmt::format("{} ** {} has no value among the floats", a, b));
      return result;
    }
    default:
      break;
  }
  if (b == 0) runtime.fail("division by zero");
  if (op == Op::divide) return a / b;
  double remainder = std::fmod(a, b);
  if (remainder == 0) {
    remainder = std::copysign(0.0, b);
  } else if ((remainder < 0) != (b < 0)) {
    remainder += b;
  }
  return op == Op::modulo ? remainder : floor_divide(a, b, remainder);
}

}  // namespace

Value binary(Runtime& runtime, Op op, const Value& a, const Value& b) {
  if (const auto* format = std::get_if<std::string_view>(&a); format && op == Op::modulo)
    return format_percent(runtime, *format, b);
  for (const Value* side : {&a, &b})
    if (const auto* missing = std::get_if<Undefined>(side)) runtime.fail_undefined(*missing);
  const auto i = as_integer(a), j = as_integer(b);
  if (i && j) return integer_binary(runtime, op, *i, *j);
  const auto x = as_real(a), y = as_real(b);
  if (x && y) return real_binary(runtime, op, *x, *y);
  if (op == Op::add) return add(runtime, a, b);
  if (op == Op::multiply && j) return repeat(runtime, a, *j);
  if (op == Op::multiply && i) return repeat(runtime, b, *i);
  fail_types(runtime, op, a, b);
}

Value negate(Runtime& runtime, const Value& value, bool keep_sign) {
  if (const auto* missing = std::get_if<Undefined>(&value)) runtime.fail_undefined(*missing);
  if (const auto n = as_integer(value))
    return keep_sign ? Value(*n) : integer_binary(runtime, Op::subtract, 0, *n);
  if (const auto* x = std::get_if<double>(&value)) return keep_sign ? *x : -*x;
  runtime.fail(fmt::format("a sign before a value of type '{}'", type_name(value)));
}

bool compare(Runtime& runtime, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::equal:
      return equals(runtime, a, b);
    case Op::not_equal:
      return !equals(runtime, a, b);
    case Op::in:
      return contains(runtime, b, a);
    case Op::not_in:
      return !contains(runtime, b, a);
    default:
      break;
  }
  const auto ordering = order(runtime, symbol_of(op), a, b);
  switch (op) {
    case Op::less:
      return ordering < 0;
    case Op::less_equal:
      return ordering <= 0;
    case Op::greater:
      return ordering > 0;
    default:
      return ordering >= 0;
  }
}

}  // namespace temper::jinja
