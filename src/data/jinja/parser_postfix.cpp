// What follows a value: attributes, subscripts, calls, filters and tests.
#include <algorithm>
#include <unordered_set>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/parser.h"

namespace temper::jinja {

ExprPtr Parser::parse_postfix(ExprPtr value) {
  for (;;) {
    if (is_op(".")) {
      value = parse_attribute(std::move(value));
    } else if (is_op("[")) {
      value = parse_subscript(std::move(value));
    } else if (is_op("(")) {
      value = node(ExprKind::call, now().at, list_of(std::move(value)));
      parse_arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr value) {
  expect_op(".");
  const Token& token = now();
  ++next_;
  if (token.kind == TokenKind::integer) {
    ExprPtr index = node(ExprKind::constant, token.at);
    index->literal = token.integer;
    return node(ExprKind::subscript, token.at, list_of(std::move(value), std::move(index)));
  }
  if (token.kind != TokenKind::name) fail_at(token.at, "expected the name of an attribute behind `.`");
  if (token.text.starts_with("__"))
    fail_at(token.at, fmt::format("the attribute `{}` is not accessible to templates", token.text));
  ExprPtr result = node(ExprKind::attribute, token.at, list_of(std::move(value)));
  result->text = token.text;
  return result;
}

ExprPtr Parser::parse_subscript(ExprPtr value) {
  const Position at = now().at;
  expect_op("[");
  ExprPtr start = is_op(":") ? nullptr : parse_expression();
  ExprPtr index = is_op(":") ? parse_slice(std::move(start), at) : std::move(start);
  if (is_op(",")) fail_at(now().at, "a subscript of several values is not supported");
  expect_op("]");
  return node(ExprKind::subscript, at, list_of(std::move(value), std::move(index)));
}

ExprPtr Parser::parse_slice(ExprPtr start, Position at) {
  expect_op(":");
  ExprPtr stop = is_op(":") || is_op("]") ? nullptr : parse_expression();
  ExprPtr step = take_op(":") && !is_op("]") ? parse_expression() : nullptr;
  return node(ExprKind::slice, at, list_of(std::move(start), std::move(stop), std::move(step)));
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr value) {
  for (;;) {
    if (is_op("|")) {
      ++next_;
      value = parse_filter(std::move(value));
    } else if (is_name("is")) {
      value = parse_test(std::move(value));
    } else if (is_op("(")) {
      value = node(ExprKind::call, now().at, list_of(std::move(value)));
      parse_arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr Parser::parse_filter(ExprPtr value) {
  const Position at = now().at;
  ExprPtr result = node(ExprKind::filter, at, list_of(std::move(value)));
  result->text = expect_identifier("the name of a filter");
  result->filter = find_filter(result->text);
  if (is_op("(")) parse_arguments(*result);
  return result;
}

ExprPtr Parser::parse_test(ExprPtr value) {
  const Position at = now().at;
  ++next_;
  const bool negated = take_name("not");
  ExprPtr result = node(ExprKind::test, now().at, list_of(std::move(value)));
  result->text = expect_identifier("the name of a test");
  result->test = find_test(result->text);
  const bool bare = now().kind == TokenKind::text || now().kind == TokenKind::integer ||
                    now().kind == TokenKind::real || is_op("[") || is_op("{") ||
                    (now().kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_op("(")) {
    parse_arguments(*result);
  } else if (bare) {
    if (is_name("is")) fail_at(now().at, "tests cannot be chained with `is`");
    result->items.push_back(parse_postfix(parse_primary()));
    result->height = std::max(result->height, result->items.back()->height + 1);
  }
  return negated ? node(ExprKind::logical_not, at, list_of(std::move(result))) : std::move(result);
}

void Parser::parse_arguments(Expr& call) {
  expect_op("(");
  std::unordered_set<std::string> names;
  ExprPtr spread, spread_named;
  const auto add = [&](ExprPtr item) {
    call.height = std::max(call.height, item->height + 1);
    call.items.push_back(std::move(item));
  };
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) expect_op(",");
    if (is_op(")") && !first) break;
    if (spread_named) fail_at(now().at, "an argument behind `**`");
    const bool keyword =
        now().kind == TokenKind::name && behind().kind == TokenKind::op && behind().text == "=";
    if (is_op("*")) {
      if (spread) fail_at(now().at, "a second `*`");
      take_op("*");
      spread = parse_expression();
    } else if (take_op("**")) {
      spread_named = parse_expression();
    } else if (keyword) {
      if (!names.insert(now().text).second)
        fail_at(now().at, fmt::format("the argument `{}` is given twice", now().text));
      call.keywords.push_back(now().text);
      next_ += 2;
      add(parse_expression());
    } else {
      if (spread || !names.empty()) fail_at(now().at, "a positional argument behind a keyword argument");
      add(parse_expression());
    }
  }
  expect_op(")");
  call.spread = spread != nullptr;
  call.spread_named = spread_named != nullptr;
  for (ExprPtr* item : {&spread, &spread_named})
    if (*item) add(std::move(*item));
  if (call.height > kMaxNesting) fail_at(call.at, fmt::format("nested deeper than {} levels", kMaxNesting));
}

}  // namespace temper::jinja
