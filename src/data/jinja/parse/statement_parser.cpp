#include <algorithm>
#include <initializer_list>
#include <unordered_set>
#include <utility>

#include "src/core/check.h"
#include "src/data/jinja/parse/expression_parser.h"

namespace temper::jinja {
namespace {

/// Puts `value` for the time of a block.
template <typename T>
class Override {
 public:
  Override(T& place, T value) : place_(place), saved_(std::exchange(place, value)) {}
  ~Override() { place_ = saved_; }
  Override(const Override&) = delete;
  Override& operator=(const Override&) = delete;

 private:
  T& place_;
  T saved_;
};

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : t_(tokens), expressions_(tokens) {}
  Block parse_all();

 private:
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
  Stmt parse_loop_control(Position at, bool is_break) const;
  ExprPtr parse_target(bool attributes);
  void check_target(const Expr& target, bool attributes) const;
  /// A name or a parenthesized target: what may stand between the commas of a target.
  ExprPtr parse_target_item();

  TokenStream& t_;
  ExpressionParser expressions_;
  int loops_ = 0;  // loops around, inside the current function
};

Block StatementParser::parse_all() { return parse_block({}, t_.now().at); }

Block StatementParser::parse_block(std::initializer_list<std::string_view> ends, Position opened) {
  const Nesting nesting(t_);
  Block block;
  for (;;) {
    const Token& token = t_.now();
    if (token.kind == TokenKind::end) {
      if (ends.size() > 0) t_.fail_at(opened, fmt::format("this block has no `{}`", *(ends.end() - 1)));
      return block;
    }
    t_.skip();
    if (token.kind == TokenKind::data) {
      block.push_back({.kind = StmtKind::data, .at = token.at, .text = token.text});
    } else if (token.kind == TokenKind::print_begin) {
      block.push_back(
          {.kind = StmtKind::print, .at = token.at, .value = expressions_.parse_tuple(true, false)});
      t_.expect(TokenKind::print_end, "`}}`");
    } else {
      const auto is_end = [&](std::string_view name) { return t_.is_name(name); };
      if (std::any_of(ends.begin(), ends.end(), is_end)) return block;
      block.push_back(parse_statement());
      t_.expect(TokenKind::tag_end, "`%}`");
    }
  }
}

Block StatementParser::parse_body(std::initializer_list<std::string_view> ends, Position opened) {
  t_.take_op(":");
  t_.expect(TokenKind::tag_end, "`%}`");
  return parse_block(ends, opened);
}

/// The name of the closing tag, whose `%}` parse_block takes.
void StatementParser::end_tag(std::string_view name) {
  if (!t_.take_name(name)) t_.fail_unexpected(fmt::format("`{}`", name));
}

Stmt StatementParser::parse_statement() {
  const Position at = t_.now().at;
  const std::string name = t_.expect_identifier("the name of a tag");
  if (name == "set") return parse_set(at);
  if (name == "if") return parse_if(at);
  if (name == "for") return parse_for(at);
  if (name == "macro") return parse_macro(at);
  if (name == "call") return parse_call_block(at);
  if (name == "with") return parse_with(at);
  if (name == "generation") return parse_generation(at);
  if (name == "filter") return parse_filter_block(at);
  if (name == "break") return parse_loop_control(at, true);
  if (name == "continue") return parse_loop_control(at, false);
  t_.fail_at(at, fmt::format("the tag `{}` is not supported here", name.substr(0, 60)));
}

Stmt StatementParser::parse_set(Position at) {
  Stmt stmt{.kind = StmtKind::set, .at = at, .target = parse_target(true)};
  if (t_.take_op("=")) {
    stmt.value = expressions_.parse_tuple(true, false);
    return stmt;
  }
  stmt.kind = StmtKind::set_block;
  while (t_.take_op("|")) {
    if (!stmt.value) stmt.value = make_node(t_, ExprKind::captured, at);
    stmt.value = expressions_.operands().parse_filter(std::move(stmt.value));
  }
  stmt.body = parse_body({"endset"}, at);
  end_tag("endset");
  return stmt;
}

Stmt StatementParser::parse_if(Position at) {
  Stmt stmt{.kind = StmtKind::branch, .at = at};
  do {
    Branch branch{.condition = expressions_.parse_tuple(false, false), .body = {}};
    branch.body = parse_body({"elif", "else", "endif"}, at);
    stmt.branches.push_back(std::move(branch));
  } while (t_.take_name("elif"));
  if (t_.take_name("else")) stmt.otherwise = parse_body({"endif"}, at);
  end_tag("endif");
  return stmt;
}

Stmt StatementParser::parse_for(Position at) {
  Stmt stmt{.kind = StmtKind::loop, .at = at, .target = parse_target(false)};
  if (!t_.take_name("in")) t_.fail_unexpected("`in`");
  stmt.value = expressions_.parse_tuple(false, false);
  if (t_.take_name("if")) stmt.condition = expressions_.parse_expression();
  stmt.recursive = t_.take_name("recursive");
  {
    const Override loops(loops_, loops_ + 1);
    stmt.body = parse_body({"else", "endfor"}, at);
  }
  if (t_.take_name("else")) {
    const Override loops(loops_, stmt.recursive ? 0 : loops_);
    stmt.otherwise = parse_body({"endfor"}, at);
  }
  end_tag("endfor");
  return stmt;
}

/// (name, name = default, ...)
void StatementParser::parse_parameters(Stmt& stmt) {
  std::unordered_set<std::string> names;
  t_.expect_op("(");
  while (!t_.is_op(")")) {
    if (!stmt.parameters.empty()) t_.expect_op(",");
    const Position name_at = t_.now().at;
    std::string name = t_.expect_identifier("the name of a parameter");
    if (!names.insert(name).second)
      t_.fail_at(name_at, fmt::format("the parameter `{}` is there twice", name));
    stmt.parameters.push_back(std::move(name));
    const bool follows_default = !stmt.defaults.empty() && stmt.defaults.back();
    stmt.defaults.push_back(t_.take_op("=") ? expressions_.parse_expression() : nullptr);
    if (follows_default && !stmt.defaults.back())
      t_.fail_at(name_at, "a parameter without default behind one with a default");
  }
  t_.expect_op(")");
}

Stmt StatementParser::parse_macro(Position at) {
  Stmt stmt{.kind = StmtKind::macro, .at = at, .text = t_.expect_identifier("the name of the macro")};
  parse_parameters(stmt);
  const Override function_loops(loops_, 0);
  stmt.body = parse_body({"endmacro"}, at);
  end_tag("endmacro");
  return stmt;
}

Stmt StatementParser::parse_call_block(Position at) {
  Stmt stmt{.kind = StmtKind::call_block, .at = at, .text = "caller"};
  if (t_.is_op("(")) parse_parameters(stmt);
  stmt.value = expressions_.parse_expression();
  if (stmt.value->kind != ExprKind::call) t_.fail_at(stmt.value->at, "a `call` block wants a call");
  const Override function_loops(loops_, 0);
  stmt.body = parse_body({"endcall"}, at);
  end_tag("endcall");
  return stmt;
}

Stmt StatementParser::parse_with(Position at) {
  Stmt stmt{.kind = StmtKind::with, .at = at};
  while (t_.now().kind != TokenKind::tag_end) {
    if (!stmt.parameters.empty()) t_.expect_op(",");
    stmt.parameters.push_back(t_.expect_identifier("the name of a variable"));
    t_.expect_op("=");
    stmt.defaults.push_back(expressions_.parse_expression());
  }
  stmt.body = parse_body({"endwith"}, at);
  end_tag("endwith");
  return stmt;
}

Stmt StatementParser::parse_generation(Position at) {
  Stmt stmt{.kind = StmtKind::scope, .at = at};
  const Override function_loops(loops_, 0);  // as in the original, a loop cannot be left from inside
  stmt.body = parse_body({"endgeneration"}, at);
  end_tag("endgeneration");
  return stmt;
}

Stmt StatementParser::parse_filter_block(Position at) {
  Stmt stmt{.kind = StmtKind::filter_block, .at = at, .value = make_node(t_, ExprKind::captured, at)};
  do {
    stmt.value = expressions_.operands().parse_filter(std::move(stmt.value));
  } while (t_.take_op("|"));
  stmt.body = parse_body({"endfilter"}, at);
  end_tag("endfilter");
  return stmt;
}

Stmt StatementParser::parse_loop_control(Position at, bool is_break) const {
  if (loops_ == 0) t_.fail_at(at, fmt::format("`{}` outside of a loop", is_break ? "break" : "continue"));
  return {.kind = is_break ? StmtKind::loop_break : StmtKind::loop_continue, .at = at};
}

ExprPtr StatementParser::parse_target(bool attributes) {
  const Position at = t_.now().at;
  std::vector<ExprPtr> items;
  bool comma = false;
  do {
    if (!items.empty()) comma = true;
    if (comma && (t_.is_name("in") || t_.is_op("=") || t_.now().kind == TokenKind::tag_end)) break;
    items.push_back(parse_target_item());
  } while (t_.take_op(","));
  ExprPtr target = comma ? make_node(t_, ExprKind::tuple, at, std::move(items)) : std::move(items.front());
  check_target(*target, attributes);
  return target;
}

ExprPtr StatementParser::parse_target_item() {
  ExprPtr item = expressions_.operands().parse_primary();
  if (item->kind == ExprKind::name && t_.is_op("."))
    return expressions_.operands().parse_attribute(std::move(item));
  return item;
}

void StatementParser::check_target(const Expr& target, bool attributes) const {
  switch (target.kind) {
    case ExprKind::name:
      if (target.text == "loop") t_.fail_at(target.at, "`loop` cannot be assigned");
      return;
    case ExprKind::tuple:
      for (const auto& item : target.items) check_target(*item, attributes);
      return;
    case ExprKind::attribute:
      if (attributes && target.items[0]->kind == ExprKind::name) return;
      break;
    default:
      break;
  }
  t_.fail_at(target.at, "this cannot be assigned to");
}

}  // namespace

Program parse_template(std::string_view text, const std::string& source) {
  TokenStream tokens(tokenize(text, source), source);
  Program program{.body = StatementParser(tokens).parse_all()};
  check_names(program, source);
  hide_names(program, source);
  return program;
}

}  // namespace temper::jinja
