#include "src/data/jinja/evaluate/expressions.h"

#include <unordered_set>

#include "src/core/check.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

/// Expressions and blocks inside each other over all running macro calls: bounds the stack of the process.
constexpr int kMaxDescent = 2000;

/// The members of a mapping as named arguments (**mapping).
void add_named(Runtime& runtime, const Value& from, Arguments& arguments) {
  auto* const* dict = std::get_if<Dict*>(&from);
  if (!dict) runtime.fail(fmt::format("`**` wants a mapping, not '{}'", type_name(from)));
  std::unordered_set<std::string_view> names;
  for (const auto& [name, unused] : arguments.named) names.insert(name);
  for (const auto& [key, value] : (*dict)->items) {
    const auto name = plain_text(runtime, key, "**");
    if (!names.insert(name).second) runtime.fail(fmt::format("the argument `{}` is given twice", name));
    arguments.named.emplace_back(name, value);
  }
}

}  // namespace

class Expressions::Descent {
 public:
  explicit Descent(Expressions& expressions) : expressions_(expressions) {
    if (expressions_.nesting_ >= kMaxDescent)
      expressions_.runtime_.fail(fmt::format("evaluation is nested deeper than {} levels", kMaxDescent));
    ++expressions_.nesting_;
  }
  ~Descent() { --expressions_.nesting_; }
  Descent(const Descent&) = delete;
  Descent& operator=(const Descent&) = delete;

 private:
  Expressions& expressions_;
};

Value Expressions::eval(const Expr& expr) {
  const Descent descent(*this);
  runtime_.at = expr.at;
  runtime_.work();
  return eval_here(expr);
}

Value Expressions::eval_here(const Expr& expr) {
  const auto item = [&](size_t i) { return eval(*expr.items[i]); };
  switch (expr.kind) {
    case ExprKind::constant:
      return std::visit(
          [](const auto& literal) -> Value {
            using T = std::decay_t<decltype(literal)>;
            if constexpr (std::is_same_v<T, std::monostate>)
              return None{};
            else if constexpr (std::is_same_v<T, std::string>)
              return std::string_view(literal);
            else
              return literal;
          },
          expr.literal);
    case ExprKind::captured:
      return runtime_.captured;
    case ExprKind::name:
      return variables_.find(expr.text);
    case ExprKind::list:
    case ExprKind::tuple:
      return eval_items(expr);
    case ExprKind::dict:
      return eval_dict(expr);
    case ExprKind::attribute:
      return eval_attribute(expr);
    case ExprKind::subscript:
      return eval_subscript(expr);
    case ExprKind::call:
      return eval_call(expr);
    case ExprKind::concat:
      return eval_concat(expr);
    case ExprKind::compare:
      return eval_compare(expr);
    case ExprKind::conditional:
      return eval_conditional(expr);
    case ExprKind::logical_not:
      return !truthy(item(0));
    case ExprKind::logical_and: {
      const Value left = item(0);
      return truthy(left) ? item(1) : left;
    }
    case ExprKind::logical_or: {
      const Value left = item(0);
      return truthy(left) ? left : item(1);
    }
    default:
      return eval_operation(expr);
  }
}

Value Expressions::eval_operation(const Expr& expr) {
  CHECK(expr.kind != ExprKind::slice, "a slice evaluated by itself");
  const Value first = eval(*expr.items[0]);
  if (expr.kind == ExprKind::binary) {
    const Value second = eval(*expr.items[1]);
    runtime_.at = expr.at;
    return binary(runtime_, expr.ops[0], first, second);
  }
  if (expr.kind == ExprKind::negate || expr.kind == ExprKind::plus) {
    runtime_.at = expr.at;
    return negate(runtime_, first, expr.kind == ExprKind::plus);
  }
  const Arguments arguments = eval_arguments(expr);
  runtime_.at = expr.at;
  if (expr.filter) return expr.filter->apply(runtime_, first, arguments);
  if (expr.test) return expr.test->apply(runtime_, first, arguments);
  runtime_.fail(fmt::format("the {} `{}` is not supported", expr.kind == ExprKind::filter ? "filter" : "test",
                            expr.text));
}

Value Expressions::eval_items(const Expr& expr) {
  std::vector<Value> items;
  for (const auto& item : expr.items) items.push_back(eval(*item));
  return runtime_.sequence(expr.kind == ExprKind::list ? Form::list : Form::tuple, std::move(items));
}

Value Expressions::eval_dict(const Expr& expr) {
  std::vector<Value> pairs;
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    const Value key = eval(*expr.items[i]);
    pairs.push_back(runtime_.sequence(Form::tuple, {key, eval(*expr.items[i + 1])}));
  }
  runtime_.at = expr.at;
  return call_function(runtime_, Function::dict,
                       {.positional = {runtime_.list(std::move(pairs))}, .named = {}});
}

Value Expressions::eval_attribute(const Expr& expr) {
  const Value object = eval(*expr.items[0]);
  runtime_.at = expr.at;
  if (const auto* loop = std::get_if<Loop*>(&object)) return loops_.attribute(**loop, expr.text);
  return get_attribute(runtime_, object, expr.text);
}

Value Expressions::eval_subscript(const Expr& expr) {
  const Value object = eval(*expr.items[0]);
  const Expr& index = *expr.items[1];
  if (index.kind == ExprKind::slice) {
    Value bounds[3] = {None{}, None{}, None{}};
    for (size_t i = 0; i < 3; ++i)
      if (index.items[i]) bounds[i] = eval(*index.items[i]);
    runtime_.at = expr.at;
    return get_slice(runtime_, object, bounds[0], bounds[1], bounds[2]);
  }
  const Value key = eval(index);
  runtime_.at = expr.at;
  const auto name = as_text(key);
  if (const auto* loop = std::get_if<Loop*>(&object); loop && name) return loops_.attribute(**loop, *name);
  return get_item(runtime_, object, key);
}

Value Expressions::eval_call(const Expr& expr, const Value* caller) {
  const Value callee = eval(*expr.items[0]);
  Arguments arguments = eval_arguments(expr);
  if (caller) arguments.named.emplace_back("caller", *caller);
  runtime_.at = expr.at;
  return call(callee, arguments);
}

Value Expressions::call(const Value& callee, const Arguments& arguments) {
  if (const auto* function = std::get_if<Function>(&callee))
    return call_function(runtime_, *function, arguments);
  if (const auto* macro = std::get_if<Macro*>(&callee)) return macros_.call(**macro, arguments);
  if (const auto* loop = std::get_if<Loop*>(&callee)) return loops_.call(**loop, arguments);
  if (const auto* joiner = std::get_if<Joiner*>(&callee)) {
    const Bound bound(runtime_, "joiner", arguments, {});
    return std::exchange((*joiner)->used, true) ? Value((*joiner)->between) : Value(std::string_view());
  }
  if (const auto* method = std::get_if<Method*>(&callee)) {
    if (const auto* loop = std::get_if<Loop*>(&(*method)->self))
      return loops_.call_method(**loop, (*method)->name, arguments);
    return call_method(runtime_, **method, arguments);
  }
  if (const auto* missing = std::get_if<Undefined>(&callee)) runtime_.fail_undefined(*missing);
  runtime_.fail(fmt::format("a value of type '{}' cannot be called", type_name(callee)));
}

Value Expressions::eval_concat(const Expr& expr) {
  std::vector<Value> parts;
  for (const auto& item : expr.items) parts.push_back(eval(*item));
  runtime_.at = expr.at;
  return join_texts(runtime_, "", parts, true);
}

Value Expressions::eval_compare(const Expr& expr) {
  Value left = eval(*expr.items[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = eval(*expr.items[i + 1]);
    runtime_.at = expr.at;
    if (!compare(runtime_, expr.ops[i], left, right)) return false;
    left = right;
  }
  return true;
}

Value Expressions::eval_conditional(const Expr& expr) {
  if (truthy(eval(*expr.items[0]))) return eval(*expr.items[1]);
  if (expr.items[2]) return eval(*expr.items[2]);
  return Undefined{.owner = "", .name = "the inline `if` was false and has no `else`"};
}

Arguments Expressions::eval_arguments(const Expr& expr) {
  Arguments arguments;
  const size_t spreads = (expr.spread ? 1 : 0) + (expr.spread_named ? 1 : 0);
  const size_t plain = expr.items.size() - spreads, positional = plain - expr.keywords.size();
  for (size_t i = 1; i < plain; ++i) {
    const Value value = eval(*expr.items[i]);
    if (i < positional) {
      arguments.positional.push_back(value);
    } else {
      arguments.named.emplace_back(expr.keywords[i - positional], value);
    }
  }
  if (expr.spread)
    for (const Value& item : iterate(runtime_, eval(*expr.items[plain])))
      arguments.positional.push_back(item);
  if (expr.spread_named) add_named(runtime_, eval(*expr.items.back()), arguments);
  return arguments;
}

}  // namespace temper::jinja
