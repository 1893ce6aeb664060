#include "src/data/jinja/parse/token_stream.h"

#include "src/core/check.h"

namespace temper::jinja {
namespace {

std::string show(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::print_end:
    case TokenKind::tag_end:
      return "the end of the tag";
    case TokenKind::text:
      return "a string";
    case TokenKind::integer:
    case TokenKind::real:
      return "a number";
    case TokenKind::name:
    case TokenKind::op:
      return fmt::format("`{}`", token.text.substr(0, 60));
    default:
      return "text";
  }
}

}  // namespace

bool TokenStream::take_op(std::string_view op) {
  if (!is_op(op)) return false;
  ++at_;
  return true;
}

bool TokenStream::take_name(std::string_view name) {
  if (!is_name(name)) return false;
  ++at_;
  return true;
}

void TokenStream::expect_op(std::string_view op) {
  if (!take_op(op)) fail_unexpected(fmt::format("`{}`", op));
}

void TokenStream::expect(TokenKind kind, const char* what) {
  if (now().kind != kind) fail_unexpected(what);
  ++at_;
}

std::string TokenStream::expect_identifier(const char* what) {
  if (now().kind != TokenKind::name) fail_unexpected(what);
  return tokens_[at_++].text;
}

void TokenStream::fail_unexpected(const std::string& wanted) const {
  fail_at(now().at, fmt::format("expected {}, found {}", wanted, show(now())));
}

void TokenStream::fail_nesting(Position at) const {
  fail_at(at, fmt::format("nested deeper than {} levels", kMaxNesting));
}

Nesting::Nesting(TokenStream& tokens) : tokens_(tokens) {
  if (tokens.nesting_ >= kMaxNesting) tokens.fail_nesting(tokens.now().at);
  ++tokens.nesting_;
}

ExprPtr make_node(const TokenStream& tokens, ExprKind kind, Position at, std::vector<ExprPtr> items) {
  int height = 1;
  for (const auto& item : items)
    if (item) height = std::max(height, item->height + 1);
  if (height > kMaxNesting) tokens.fail_nesting(at);
  return std::make_unique<Expr>(Expr{.kind = kind, .at = at, .height = height, .items = std::move(items)});
}

}  // namespace temper::jinja
