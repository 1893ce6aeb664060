#include "src/data/jinja/parser.h"

#include <algorithm>

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

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser.nesting_ >= kMaxNesting)
    parser.fail_at(parser.now().at, fmt::format("nested deeper than {} levels", kMaxNesting));
  ++parser.nesting_;
}

bool Parser::take_op(std::string_view op) {
  if (!is_op(op)) return false;
  ++next_;
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!is_name(name)) return false;
  ++next_;
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!take_op(op)) fail_unexpected(fmt::format("`{}`", op));
}

void Parser::expect(TokenKind kind, const char* what) {
  if (now().kind != kind) fail_unexpected(what);
  ++next_;
}

std::string Parser::expect_identifier(const char* what) {
  if (now().kind != TokenKind::name) fail_unexpected(what);
  return tokens_[next_++].text;
}

void Parser::fail_unexpected(const std::string& wanted) const {
  fail_at(now().at, fmt::format("expected {}, found {}", wanted, show(now())));
}

ExprPtr Parser::node(ExprKind kind, Position at, std::vector<ExprPtr> items) const {
  int height = 1;
  for (const auto& item : items)
    if (item) height = std::max(height, item->height + 1);
  if (height > kMaxNesting) fail_at(at, fmt::format("nested deeper than {} levels", kMaxNesting));
  return std::make_unique<Expr>(Expr{.kind = kind, .at = at, .height = height, .items = std::move(items)});
}

ExprPtr Parser::parse_expression() {
  const Nesting nesting(*this);
  const Position at = now().at;
  ExprPtr value = parse_or();
  while (take_name("if")) {
    ExprPtr condition = parse_or();
    ExprPtr otherwise = take_name("else") ? parse_expression() : nullptr;
    value = node(ExprKind::conditional, at,
                 list_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    const Position at = tokens_[next_++].at;
    left = node(ExprKind::logical_or, at, list_of(std::move(left), parse_and()));
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    const Position at = tokens_[next_++].at;
    left = node(ExprKind::logical_and, at, list_of(std::move(left), parse_not()));
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const Position at = tokens_[next_++].at;
  return node(ExprKind::logical_not, at, list_of(parse_not()));
}

ExprPtr Parser::parse_compare() {
  const Position at = now().at;
  std::vector<ExprPtr> items;
  std::vector<Op> ops;
  items.push_back(parse_sum());
  for (;;) {
    if (const auto* entry = find_op(kCompare, now())) {
      ops.push_back(entry->op);
      ++next_;
    } else if (take_name("in")) {
      ops.push_back(Op::in);
    } else if (is_name("not") && behind().kind == TokenKind::name && behind().text == "in") {
      ops.push_back(Op::not_in);
      next_ += 2;
    } else {
      break;
    }
    items.push_back(parse_sum());
  }
  if (ops.empty()) return std::move(items.front());
  ExprPtr value = node(ExprKind::compare, at, std::move(items));
  value->ops = std::move(ops);
  return value;
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (const auto* entry = find_op(kSum, now())) {
    const Position at = tokens_[next_++].at;
    left = node(ExprKind::binary, at, list_of(std::move(left), parse_concat()));
    left->ops.push_back(entry->op);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const Position at = now().at;
  std::vector<ExprPtr> items;
  do {
    items.push_back(parse_product());
  } while (take_op("~"));
  return items.size() == 1 ? std::move(items.front()) : node(ExprKind::concat, at, std::move(items));
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (const auto* entry = find_op(kProduct, now())) {
    const Position at = tokens_[next_++].at;
    left = node(ExprKind::binary, at, list_of(std::move(left), parse_power()));
    left->ops.push_back(entry->op);
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (const auto* entry = find_op(kPower, now())) {
    const Position at = tokens_[next_++].at;
    left = node(ExprKind::binary, at, list_of(std::move(left), parse_unary(true)));
    left->ops.push_back(entry->op);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Position at = now().at;
  ExprPtr value;
  if (is_op("-") || is_op("+")) {
    const Nesting nesting(*this);
    const auto kind = is_op("-") ? ExprKind::negate : ExprKind::plus;
    ++next_;
    value = node(kind, at, list_of(parse_unary(false)));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filter ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr Parser::parse_primary() {
  const Token& token = now();
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::text: {
      ExprPtr value = node(ExprKind::constant, token.at);
      std::string text;
      while (now().kind == TokenKind::text) text += tokens_[next_++].text;
      value->literal = std::move(text);
      return value;
    }
    case TokenKind::integer:
    case TokenKind::real: {
      ExprPtr value = node(ExprKind::constant, token.at);
      if (token.kind == TokenKind::integer) {
        value->literal = token.integer;
      } else {
        value->literal = token.real;
      }
      ++next_;
      return value;
    }
    default:
      break;
  }
  if (take_op("(")) {
    ExprPtr value = parse_tuple(true, true);
    expect_op(")");
    return value;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  fail_unexpected("an expression");
}

ExprPtr Parser::parse_name() {
  const Position at = now().at;
  const std::string name = tokens_[next_++].text;
  const bool is_true = name == "true" || name == "True";
  if (is_true || name == "false" || name == "False" || name == "none" || name == "None") {
    ExprPtr value = node(ExprKind::constant, at);
    if (name != "none" && name != "None") value->literal = is_true;
    return value;
  }
  ExprPtr value = node(ExprKind::name, at);
  value->text = name;
  return value;
}

ExprPtr Parser::parse_list() {
  const Position at = now().at;
  expect_op("[");
  std::vector<ExprPtr> items;
  while (!is_op("]")) {
    if (!items.empty()) expect_op(",");
    if (is_op("]")) break;
    items.push_back(parse_expression());
  }
  expect_op("]");
  return node(ExprKind::list, at, std::move(items));
}

ExprPtr Parser::parse_dict() {
  const Position at = now().at;
  expect_op("{");
  std::vector<ExprPtr> items;
  while (!is_op("}")) {
    if (!items.empty()) expect_op(",");
    if (is_op("}")) break;
    items.push_back(parse_expression());
    expect_op(":");
    items.push_back(parse_expression());
  }
  expect_op("}");
  return node(ExprKind::dict, at, std::move(items));
}

ExprPtr Parser::parse_tuple(bool inline_if, bool parentheses) {
  const Position at = now().at;
  std::vector<ExprPtr> items;
  bool comma = false;
  const auto at_end = [&] {
    return now().kind == TokenKind::print_end || now().kind == TokenKind::tag_end || is_op(")");
  };
  for (;;) {
    if (!items.empty()) expect_op(",");
    if (at_end()) break;
    items.push_back(inline_if ? parse_expression() : parse_or());
    if (!is_op(",")) break;
    comma = true;
  }
  if (!comma && !items.empty()) return std::move(items.front());
  if (items.empty() && !parentheses) fail_unexpected("an expression");
  return node(ExprKind::tuple, at, std::move(items));
}

}  // namespace temper::jinja
