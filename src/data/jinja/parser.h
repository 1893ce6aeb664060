#pragma once
// Recursive descent over the tokens of a template, with the precedences of Jinja2: conditional, or, and, not,
// comparison, + -, ~, * / // %, **, sign, postfix, filter and test. In three files: operators and literals,
// what follows a value (parser_postfix.cpp), statements (parser_statements.cpp). Every recursion
// passes through Nesting, which stops at kMaxNesting.

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/jinja/ast.h"

namespace temper::jinja {

/// Items of a node.
template <typename... Items>
std::vector<ExprPtr> list_of(Items... items) {
  std::vector<ExprPtr> list;
  (list.push_back(std::move(items)), ...);
  return list;
}

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& source)
      : tokens_(std::move(tokens)), source_(source) {}
  Block parse_all();

 private:
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token& now() const { return tokens_[next_]; }
  const Token& behind() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  bool is_op(std::string_view op) const { return now().kind == TokenKind::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == TokenKind::name && now().text == name; }
  bool take_op(std::string_view op);
  bool take_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect(TokenKind kind, const char* what);
  std::string expect_identifier(const char* what);
  [[noreturn]] void fail_at(Position at, const std::string& why) const { fail_syntax(source_, at, why); }
  [[noreturn]] void fail_unexpected(const std::string& wanted) const;

  ExprPtr node(ExprKind kind, Position at, std::vector<ExprPtr> items = {}) const;
  ExprPtr parse_expression();  // with the inline if
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr value);
  ExprPtr parse_attribute(ExprPtr value);
  ExprPtr parse_subscript(ExprPtr value);
  ExprPtr parse_slice(ExprPtr start, Position at);
  ExprPtr parse_filters_and_tests(ExprPtr value);
  ExprPtr parse_filter(ExprPtr value);
  ExprPtr parse_test(ExprPtr value);
  void parse_arguments(Expr& call);
  /// `a` or `a, b`: with `inline_if` false, `if` ends it (for ... in xs if ...).
  ExprPtr parse_tuple(bool inline_if, bool parentheses);

  /// Until one of the tag names in `ends`, which is left as the current token.
  Block parse_block(std::initializer_list<std::string_view> ends, Position opened);
  Block parse_body(std::initializer_list<std::string_view> ends, Position opened);
  void end_tag(std::string_view name);
  Stmt parse_statement();
  Stmt parse_set(Position at);
  Stmt parse_if(Position at);
  Stmt parse_for(Position at);
  Stmt parse_macro(Position at);
  Stmt parse_call_block(Position at);
  void parse_parameters(Stmt& stmt);
  Stmt parse_with(Position at);
  Stmt parse_generation(Position at);
  Stmt parse_filter_block(Position at);
  Stmt parse_loop_control(Position at, bool is_break);
  ExprPtr parse_target(bool attributes);
  void check_target(const Expr& target, bool attributes) const;
  /// A name or a parenthesized target: what may stand between the commas of a target.
  ExprPtr parse_target_item();

  std::vector<Token> tokens_;
  const std::string& source_;
  size_t next_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // loops around, inside the current function
};

}  // namespace temper::jinja
