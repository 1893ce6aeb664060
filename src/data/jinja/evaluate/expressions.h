#pragma once
// Values of expressions.

#include "src/data/jinja/evaluate/loops.h"
#include "src/data/jinja/evaluate/macros.h"

namespace temper::jinja {

class Expressions {
 public:
  Expressions(Runtime& runtime, Variables& variables, Macros& macros, Loops& loops)
      : runtime_(runtime), variables_(variables), macros_(macros), loops_(loops) {}

  Value eval(const Expr& expr);
  /// `caller`: the macro of a call block, which is one more named argument.
  Value eval_call(const Expr& expr, const Value* caller = nullptr);

 private:
  class Descent;

  Value eval_here(const Expr& expr);
  Value eval_operation(const Expr& expr);
  Value eval_items(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_attribute(const Expr& expr);
  Value eval_subscript(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_conditional(const Expr& expr);
  Arguments eval_arguments(const Expr& expr);
  Value call(const Value& callee, const Arguments& arguments);

  Runtime& runtime_;
  Variables& variables_;
  Macros& macros_;
  Loops& loops_;
  int nesting_ = 0;
};

}  // namespace temper::jinja
