#pragma once
// What operators stand between: literals, names, lists, and what follows a value: attributes, subscripts,
// calls, filters and tests.

#include "src/data/jinja/parse/token_stream.h"

namespace temper::jinja {

class ExpressionParser;

class OperandParser {
 public:
  /// `expressions`: what stands in brackets.
  OperandParser(TokenStream& tokens, ExpressionParser& expressions) : t_(tokens), expressions_(expressions) {}

  ExprPtr parse_primary();
  ExprPtr parse_postfix(ExprPtr value);
  ExprPtr parse_filters_and_tests(ExprPtr value);
  ExprPtr parse_attribute(ExprPtr value);
  /// Behind the `|`.
  ExprPtr parse_filter(ExprPtr value);

 private:
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_subscript(ExprPtr value);
  ExprPtr parse_slice(ExprPtr start, Position at);
  ExprPtr parse_test(ExprPtr value);
  void parse_arguments(Expr& call);

  TokenStream& t_;
  ExpressionParser& expressions_;
};

}  // namespace temper::jinja
