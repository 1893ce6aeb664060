#include "src/data/jinja/parse/expression_parser.h"

#include <algorithm>

namespace temper::jinja {
namespace {

struct OpName {
  std::string_view text;
  Op op;
};
constexpr OpName kCompare[] = {{"==", Op::equal},      {"!=", Op::not_equal}, {"<", Op::less},
                               {"<=", Op::less_equal}, {">", Op::greater},    {">=", Op::greater_equal}};
constexpr OpName kSum[] = {{"+", Op::add}, {"-", Op::subtract}};
constexpr OpName kProduct[] = {
    {"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};
constexpr OpName kPower[] = {{"**", Op::power}};

template <size_t n>
const OpName* find_op(const OpName (&table)[n], const Token& token) {
  if (token.kind != TokenKind::op) return nullptr;
  const auto* entry = std::find_if(table, table + n, [&](const OpName& e) { return e.text == token.text; });
  return entry == table + n ? nullptr : entry;
}

}  // namespace

ExprPtr ExpressionParser::parse_expression() {
  const Nesting nesting(t_);
  const Position at = t_.now().at;
  ExprPtr value = parse_or();
  while (t_.take_name("if")) {
    ExprPtr condition = parse_or();
    ExprPtr otherwise = t_.take_name("else") ? parse_expression() : nullptr;
    value = make_node(t_, ExprKind::conditional, at,
                      list_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (t_.is_name("or")) {
    const Position at = t_.next().at;
    left = make_node(t_, ExprKind::logical_or, at, list_of(std::move(left), parse_and()));
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (t_.is_name("and")) {
    const Position at = t_.next().at;
    left = make_node(t_, ExprKind::logical_and, at, list_of(std::move(left), parse_not()));
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!t_.is_name("not")) return parse_compare();
  const Nesting nesting(t_);
  const Position at = t_.next().at;
  return make_node(t_, ExprKind::logical_not, at, list_of(parse_not()));
}

ExprPtr ExpressionParser::parse_compare() {
  const Position at = t_.now().at;
  std::vector<ExprPtr> items;
  std::vector<Op> ops;
  items.push_back(parse_sum());
  for (;;) {
    if (const auto* entry = find_op(kCompare, t_.now())) {
      ops.push_back(entry->op);
      t_.skip();
    } else if (t_.take_name("in")) {
      ops.push_back(Op::in);
    } else if (t_.is_name("not") && t_.behind().kind == TokenKind::name && t_.behind().text == "in") {
      ops.push_back(Op::not_in);
      t_.skip(2);
    } else {
      break;
    }
    items.push_back(parse_sum());
  }
  if (ops.empty()) return std::move(items.front());
  ExprPtr value = make_node(t_, ExprKind::compare, at, std::move(items));
  value->ops = std::move(ops);
  return value;
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (const auto* entry = find_op(kSum, t_.now())) {
    const Position at = t_.next().at;
    left = make_node(t_, ExprKind::binary, at, list_of(std::move(left), parse_concat()));
    left->ops.push_back(entry->op);
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  const Position at = t_.now().at;
  std::vector<ExprPtr> items;
  do {
    items.push_back(parse_product());
  } while (t_.take_op("~"));
  return items.size() == 1 ? std::move(items.front()) : make_node(t_, ExprKind::concat, at, std::move(items));
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (const auto* entry = find_op(kProduct, t_.now())) {
    const Position at = t_.next().at;
    left = make_node(t_, ExprKind::binary, at, list_of(std::move(left), parse_power()));
    left->ops.push_back(entry->op);
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (const auto* entry = find_op(kPower, t_.now())) {
    const Position at = t_.next().at;
    left = make_node(t_, ExprKind::binary, at, list_of(std::move(left), parse_unary(true)));
    left->ops.push_back(entry->op);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  const Position at = t_.now().at;
  ExprPtr value;
  if (t_.is_op("-") || t_.is_op("+")) {
    const Nesting nesting(t_);
    const auto kind = t_.is_op("-") ? ExprKind::negate : ExprKind::plus;
    t_.skip();
    value = make_node(t_, kind, at, list_of(parse_unary(false)));
  } else {
    value = operands_.parse_primary();
  }
  value = operands_.parse_postfix(std::move(value));
  return with_filter ? operands_.parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_tuple(bool inline_if, bool parentheses) {
  const Position at = t_.now().at;
  std::vector<ExprPtr> items;
  bool comma = false;
  const auto at_end = [&] {
    return t_.now().kind == TokenKind::print_end || t_.now().kind == TokenKind::tag_end || t_.is_op(")");
  };
  for (;;) {
    if (!items.empty()) t_.expect_op(",");
    if (at_end()) break;
    items.push_back(inline_if ? parse_expression() : parse_or());
    if (!t_.is_op(",")) break;
    comma = true;
  }
  if (!comma && !items.empty()) return std::move(items.front());
  if (items.empty() && !parentheses) t_.fail_unexpected("an expression");
  return make_node(t_, ExprKind::tuple, at, std::move(items));
}

}  // namespace temper::jinja
