#pragma once
// Recursive descent over operators, with the precedences of Jinja2: conditional, or, and, not, comparison,
// + -, ~, * / // %, **, sign; what they stand between is an operand.

#include "src/data/jinja/parse/operand_parser.h"

namespace temper::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : t_(tokens), operands_(tokens, *this) {}

  ExprPtr parse_expression();  // with the inline if
  /// `a` or `a, b`: with `inline_if` false, `if` ends it (for ... in xs if ...).
  ExprPtr parse_tuple(bool inline_if, bool parentheses);
  OperandParser& operands() { return operands_; }

 private:
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);

  TokenStream& t_;
  OperandParser operands_;
};

}  // namespace temper::jinja
