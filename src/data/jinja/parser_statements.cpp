#include <algorithm>
#include <unordered_set>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/parser.h"

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

}  // namespace

Block Parser::parse_all() { return parse_block({}, now().at); }

Block Parser::parse_block(std::initializer_list<std::string_view> ends, Position opened) {
  const Nesting nesting(*this);
  Block block;
  for (;;) {
    const Token& token = now();
    if (token.kind == TokenKind::end) {
      if (ends.size() > 0) fail_at(opened, fmt::format("this block has no `{}`", *(ends.end() - 1)));
      return block;
    }
    ++next_;
    if (token.kind == TokenKind::data) {
      block.push_back({.kind = StmtKind::data, .at = token.at, .text = token.text});
    } else if (token.kind == TokenKind::print_begin) {
      block.push_back({.kind = StmtKind::print, .at = token.at, .value = parse_tuple(true, false)});
      expect(TokenKind::print_end, "`}}`");
    } else {
      const auto is_end = [&](std::string_view name) { return is_name(name); };
      if (std::any_of(ends.begin(), ends.end(), is_end)) return block;
      block.push_back(parse_statement());
      expect(TokenKind::tag_end, "`%}`");
    }
  }
}

Block Parser::parse_body(std::initializer_list<std::string_view> ends, Position opened) {
  take_op(":");
  expect(TokenKind::tag_end, "`%}`");
  return parse_block(ends, opened);
}

/// The name of the closing tag, whose `%}` parse_block takes.
void Parser::end_tag(std::string_view name) {
  if (!take_name(name)) fail_unexpected(fmt::format("`{}`", name));
}

Stmt Parser::parse_statement() {
  const Position at = now().at;
  const std::string name = expect_identifier("the name of a tag");
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
  fail_at(at, fmt::format("the tag `{}` is not supported here", name.substr(0, 60)));
}

Stmt Parser::parse_set(Position at) {
  Stmt stmt{.kind = StmtKind::set, .at = at, .target = parse_target(true)};
  if (take_op("=")) {
    stmt.value = parse_tuple(true, false);
    return stmt;
  }
  stmt.kind = StmtKind::set_block;
  while (take_op("|")) {
    if (!stmt.value) stmt.value = node(ExprKind::captured, at);
    stmt.value = parse_filter(std::move(stmt.value));
  }
  stmt.body = parse_body({"endset"}, at);
  end_tag("endset");
  return stmt;
}

Stmt Parser::parse_if(Position at) {
  Stmt stmt{.kind = StmtKind::branch, .at = at};
  do {
    Branch branch{.condition = parse_tuple(false, false), .body = {}};
    branch.body = parse_body({"elif", "else", "endif"}, at);
    stmt.branches.push_back(std::move(branch));
  } while (take_name("elif"));
  if (take_name("else")) stmt.otherwise = parse_body({"endif"}, at);
  end_tag("endif");
  return stmt;
}

Stmt Parser::parse_for(Position at) {
  Stmt stmt{.kind = StmtKind::loop, .at = at, .target = parse_target(false)};
  if (!take_name("in")) fail_unexpected("`in`");
  stmt.value = parse_tuple(false, false);
  if (take_name("if")) stmt.condition = parse_expression();
  stmt.recursive = take_name("recursive");
  {
    const Override loops(loops_, loops_ + 1);
    stmt.body = parse_body({"else", "endfor"}, at);
  }
  if (take_name("else")) {
    const Override loops(loops_, stmt.recursive ? 0 : loops_);
    stmt.otherwise = parse_body({"endfor"}, at);
  }
  end_tag("endfor");
  return stmt;
}

/// (name, name = default, ...)
void Parser::parse_parameters(Stmt& stmt) {
  std::unordered_set<std::string> names;
  expect_op("(");
  while (!is_op(")")) {
    if (!stmt.parameters.empty()) expect_op(",");
    const Position name_at = now().at;
    std::string name = expect_identifier("the name of a parameter");
    if (!names.insert(name).second) fail_at(name_at, fmt::format("the parameter `{}` is there twice", name));
    stmt.parameters.push_back(std::move(name));
    const bool follows_default = !stmt.defaults.empty() && stmt.defaults.back();
    stmt.defaults.push_back(take_op("=") ? parse_expression() : nullptr);
    if (follows_default && !stmt.defaults.back())
      fail_at(name_at, "a parameter without default behind one with a default");
  }
  expect_op(")");
}

Stmt Parser::parse_macro(Position at) {
  Stmt stmt{.kind = StmtKind::macro, .at = at, .text = expect_identifier("the name of the macro")};
  parse_parameters(stmt);
  const Override function_loops(loops_, 0);
  stmt.body = parse_body({"endmacro"}, at);
  end_tag("endmacro");
  return stmt;
}

Stmt Parser::parse_call_block(Position at) {
  Stmt stmt{.kind = StmtKind::call_block, .at = at, .text = "caller"};
  if (is_op("(")) parse_parameters(stmt);
  stmt.value = parse_expression();
  if (stmt.value->kind != ExprKind::call) fail_at(stmt.value->at, "a `call` block wants a call");
  const Override function_loops(loops_, 0);
  stmt.body = parse_body({"endcall"}, at);
  end_tag("endcall");
  return stmt;
}

Stmt Parser::parse_with(Position at) {
  Stmt stmt{.kind = StmtKind::with, .at = at};
  while (now().kind != TokenKind::tag_end) {
    if (!stmt.parameters.empty()) expect_op(",");
    stmt.parameters.push_back(expect_identifier("the name of a variable"));
    expect_op("=");
    stmt.defaults.push_back(parse_expression());
  }
  stmt.body = parse_body({"endwith"}, at);
  end_tag("endwith");
  return stmt;
}

Stmt Parser::parse_generation(Position at) {
  Stmt stmt{.kind = StmtKind::scope, .at = at};
  const Override function_loops(loops_, 0);  // as in the original, a loop cannot be left from inside
  stmt.body = parse_body({"endgeneration"}, at);
  end_tag("endgeneration");
  return stmt;
}

Stmt Parser::parse_filter_block(Position at) {
  Stmt stmt{.kind = StmtKind::filter_block, .at = at, .value = node(ExprKind::captured, at)};
  do {
    stmt.value = parse_filter(std::move(stmt.value));
  } while (take_op("|"));
  stmt.body = parse_body({"endfilter"}, at);
  end_tag("endfilter");
  return stmt;
}

Stmt Parser::parse_loop_control(Position at, bool is_break) {
  if (loops_ == 0) fail_at(at, fmt::format("`{}` outside of a loop", is_break ? "break" : "continue"));
  return {.kind = is_break ? StmtKind::loop_break : StmtKind::loop_continue, .at = at};
}

ExprPtr Parser::parse_target(bool attributes) {
  const Position at = now().at;
  std::vector<ExprPtr> items;
  bool comma = false;
  do {
    if (!items.empty()) comma = true;
    if (comma && (is_name("in") || is_op("=") || now().kind == TokenKind::tag_end)) break;
    items.push_back(parse_target_item());
  } while (take_op(","));
  ExprPtr target = comma ? node(ExprKind::tuple, at, std::move(items)) : std::move(items.front());
  check_target(*target, attributes);
  return target;
}

ExprPtr Parser::parse_target_item() {
  ExprPtr item = parse_primary();
  if (item->kind == ExprKind::name && is_op(".")) return parse_attribute(std::move(item));
  return item;
}

void Parser::check_target(const Expr& target, bool attributes) const {
  switch (target.kind) {
    case ExprKind::name:
      if (target.text == "loop") fail_at(target.at, "`loop` cannot be assigned");
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
  fail_at(target.at, "this cannot be assigned to");
}

Program parse_template(std::string_view text, const std::string& source) {
  Program program{.body = Parser(tokenize(text, source), source).parse_all()};
  check_names(program, source);
  hide_names(program, source);
  return program;
}

}  // namespace temper::jinja
