#include "src/data/jinja/parse/operand_parser.h"

#include <algorithm>
#include <unordered_set>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/parse/expression_parser.h"

namespace temper::jinja {

ExprPtr OperandParser::parse_primary() {
  const Token& token = t_.now();
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::text: {
      ExprPtr value = make_node(t_, ExprKind::constant, token.at);
      std::string text;
      while (t_.now().kind == TokenKind::text) text += t_.next().text;
      value->literal = std::move(text);
      return value;
    }
    case TokenKind::integer:
    case TokenKind::real: {
      ExprPtr value = make_node(t_, ExprKind::constant, token.at);
      if (token.kind == TokenKind::integer) {
        value->literal = token.integer;
      } else {
        value->literal = token.real;
      }
      t_.skip();
      return value;
    }
    default:
      break;
  }
  if (t_.take_op("(")) {
    ExprPtr value = expressions_.parse_tuple(true, true);
    t_.expect_op(")");
    return value;
  }
  if (t_.is_op("[")) return parse_list();
  if (t_.is_op("{")) return parse_dict();
  t_.fail_unexpected("an expression");
}

ExprPtr OperandParser::parse_name() {
  const Position at = t_.now().at;
  const std::string name = t_.next().text;
  const bool is_true = name == "true" || name == "True";
  if (is_true || name == "false" || name == "False" || name == "none" || name == "None") {
    ExprPtr value = make_node(t_, ExprKind::constant, at);
    if (name != "none" && name != "None") value->literal = is_true;
    return value;
  }
  ExprPtr value = make_node(t_, ExprKind::name, at);
  value->text = name;
  return value;
}

ExprPtr OperandParser::parse_list() {
  const Position at = t_.now().at;
  t_.expect_op("[");
  std::vector<ExprPtr> items;
  while (!t_.is_op("]")) {
    if (!items.empty()) t_.expect_op(",");
    if (t_.is_op("]")) break;
    items.push_back(expressions_.parse_expression());
  }
  t_.expect_op("]");
  return make_node(t_, ExprKind::list, at, std::move(items));
}

ExprPtr OperandParser::parse_dict() {
  const Position at = t_.now().at;
  t_.expect_op("{");
  std::vector<ExprPtr> items;
  while (!t_.is_op("}")) {
    if (!items.empty()) t_.expect_op(",");
    if (t_.is_op("}")) break;
    items.push_back(expressions_.parse_expression());
    t_.expect_op(":");
    items.push_back(expressions_.parse_expression());
  }
  t_.expect_op("}");
  return make_node(t_, ExprKind::dict, at, std::move(items));
}

ExprPtr OperandParser::parse_postfix(ExprPtr value) {
  for (;;) {
    if (t_.is_op(".")) {
      value = parse_attribute(std::move(value));
    } else if (t_.is_op("[")) {
      value = parse_subscript(std::move(value));
    } else if (t_.is_op("(")) {
      value = make_node(t_, ExprKind::call, t_.now().at, list_of(std::move(value)));
      parse_arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr OperandParser::parse_attribute(ExprPtr value) {
  t_.expect_op(".");
  const Token& token = t_.now();
  t_.skip();
  if (token.kind == TokenKind::integer) {
    ExprPtr index = make_node(t_, ExprKind::constant, token.at);
    index->literal = token.integer;
    return make_node(t_, ExprKind::subscript, token.at, list_of(std::move(value), std::move(index)));
  }
  if (token.kind != TokenKind::name) t_.fail_at(token.at, "expected the name of an attribute behind `.`");
  if (token.text.starts_with("__"))
    t_.fail_at(token.at, fmt::format("the attribute `{}` is not accessible to templates", token.text));
  ExprPtr result = make_node(t_, ExprKind::attribute, token.at, list_of(std::move(value)));
  result->text = token.text;
  return result;
}

ExprPtr OperandParser::parse_subscript(ExprPtr value) {
  const Position at = t_.now().at;
  t_.expect_op("[");
  ExprPtr start = t_.is_op(":") ? nullptr : expressions_.parse_expression();
  ExprPtr index = t_.is_op(":") ? parse_slice(std::move(start), at) : std::move(start);
  if (t_.is_op(",")) t_.fail_at(t_.now().at, "a subscript of several values is not supported");
  t_.expect_op("]");
  return make_node(t_, ExprKind::subscript, at, list_of(std::move(value), std::move(index)));
}

ExprPtr OperandParser::parse_slice(ExprPtr start, Position at) {
  t_.expect_op(":");
  ExprPtr stop = t_.is_op(":") || t_.is_op("]") ? nullptr : expressions_.parse_expression();
  ExprPtr step = t_.take_op(":") && !t_.is_op("]") ? expressions_.parse_expression() : nullptr;
  return make_node(t_, ExprKind::slice, at, list_of(std::move(start), std::move(stop), std::move(step)));
}

ExprPtr OperandParser::parse_filters_and_tests(ExprPtr value) {
  for (;;) {
    if (t_.is_op("|")) {
      t_.skip();
      value = parse_filter(std::move(value));
    } else if (t_.is_name("is")) {
      value = parse_test(std::move(value));
    } else if (t_.is_op("(")) {
      value = make_node(t_, ExprKind::call, t_.now().at, list_of(std::move(value)));
      parse_arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr OperandParser::parse_filter(ExprPtr value) {
  const Position at = t_.now().at;
  ExprPtr result = make_node(t_, ExprKind::filter, at, list_of(std::move(value)));
  result->text = t_.expect_identifier("the name of a filter");
  result->filter = find_filter(result->text);
  if (t_.is_op("(")) parse_arguments(*result);
  return result;
}

ExprPtr OperandParser::parse_test(ExprPtr value) {
  const Position at = t_.now().at;
  t_.skip();
  const bool negated = t_.take_name("not");
  ExprPtr result = make_node(t_, ExprKind::test, t_.now().at, list_of(std::move(value)));
  result->text = t_.expect_identifier("the name of a test");
  result->test = find_test(result->text);
  const bool bare =
      t_.now().kind == TokenKind::text || t_.now().kind == TokenKind::integer ||
      t_.now().kind == TokenKind::real || t_.is_op("[") || t_.is_op("{") ||
      (t_.now().kind == TokenKind::name && !t_.is_name("else") && !t_.is_name("or") && !t_.is_name("and"));
  if (t_.is_op("(")) {
    parse_arguments(*result);
  } else if (bare) {
    if (t_.is_name("is")) t_.fail_at(t_.now().at, "tests cannot be chained with `is`");
    result->items.push_back(parse_postfix(parse_primary()));
    result->height = std::max(result->height, result->items.back()->height + 1);
  }
  return negated ? make_node(t_, ExprKind::logical_not, at, list_of(std::move(result))) : std::move(result);
}

void OperandParser::parse_arguments(Expr& call) {
  t_.expect_op("(");
  std::unordered_set<std::string> names;
  ExprPtr spread, spread_named;
  const auto add = [&](ExprPtr item) {
    call.height = std::max(call.height, item->height + 1);
    call.items.push_back(std::move(item));
  };
  for (bool first = true; !t_.is_op(")"); first = false) {
    if (!first) t_.expect_op(",");
    if (t_.is_op(")") && !first) break;
    if (spread_named) t_.fail_at(t_.now().at, "an argument behind `**`");
    const bool keyword =
        t_.now().kind == TokenKind::name && t_.behind().kind == TokenKind::op && t_.behind().text == "=";
    if (t_.is_op("*")) {
      if (spread) t_.fail_at(t_.now().at, "a second `*`");
      t_.take_op("*");
      spread = expressions_.parse_expression();
    } else if (t_.take_op("**")) {
      spread_named = expressions_.parse_expression();
    } else if (keyword) {
      if (!names.insert(t_.now().text).second)
        t_.fail_at(t_.now().at, fmt::format("the argument `{}` is given twice", t_.now().text));
      call.keywords.push_back(t_.now().text);
      t_.skip(2);
      add(expressions_.parse_expression());
    } else {
      if (spread || !names.empty())
        t_.fail_at(t_.now().at, "a positional argument behind a keyword argument");
      add(expressions_.parse_expression());
    }
  }
  t_.expect_op(")");
  call.spread = spread != nullptr;
  call.spread_named = spread_named != nullptr;
  for (ExprPtr* item : {&spread, &spread_named})
    if (*item) add(std::move(*item));
  if (call.height > kMaxNesting) t_.fail_nesting(call.at);
}

}  // namespace temper::jinja
