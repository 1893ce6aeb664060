#pragma once
// The tokens of a template as a parser reads them, with the place of errors and the bound of every recursion.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/jinja/ast.h"

namespace temper::jinja {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& source)
      : tokens_(std::move(tokens)), source_(source) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& behind() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_++]; }
  void skip(size_t tokens = 1) { at_ += tokens; }
  bool is_op(std::string_view op) const { return now().kind == TokenKind::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == TokenKind::name && now().text == name; }
  bool take_op(std::string_view op);
  bool take_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect(TokenKind kind, const char* what);
  std::string expect_identifier(const char* what);
  [[noreturn]] void fail_at(Position at, const std::string& why) const { fail_syntax(source_, at, why); }
  [[noreturn]] void fail_unexpected(const std::string& wanted) const;
  [[noreturn]] void fail_nesting(Position at) const;

 private:
  friend class Nesting;
  std::vector<Token> tokens_;
  const std::string& source_;
  size_t at_ = 0;
  int nesting_ = 0;
};

/// Every recursion of a parser passes through one; the error at kMaxNesting.
class Nesting {
 public:
  explicit Nesting(TokenStream& tokens);
  ~Nesting() { --tokens_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  TokenStream& tokens_;
};

/// Items of a node.
template <typename... Items>
std::vector<ExprPtr> list_of(Items... items) {
  std::vector<ExprPtr> list;
  (list.push_back(std::move(items)), ...);
  return list;
}
ExprPtr make_node(const TokenStream& tokens, ExprKind kind, Position at, std::vector<ExprPtr> items = {});

}  // namespace temper::jinja
