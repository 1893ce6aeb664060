#include "src/data/jinja/evaluate/statements.h"

#include "src/core/check.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {

std::string Statements::capture(const Block& block, Frame* frame) {
  return output_.captured(frame, [&] { run_block(block); });
}

Flow Statements::run_block(const Block& block) {
  for (const Stmt& stmt : block) {
    runtime_.at = stmt.at;
    runtime_.work();
    if (const Flow flow = run_statement(stmt); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Flow Statements::run_statement(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::data:
      output_.emit(stmt.text);
      break;
    case StmtKind::print:
      output_.print(expressions_.eval(*stmt.value));
      break;
    case StmtKind::set:
      assign(*stmt.target, expressions_.eval(*stmt.value));
      break;
    case StmtKind::set_block:
      run_set_block(stmt);
      break;
    case StmtKind::branch:
      return run_branch(stmt);
    case StmtKind::loop:
      return loops_.run(stmt, expressions_.eval(*stmt.value), variables_.innermost(), 0);
    case StmtKind::macro:
      variables_.set(*variables_.innermost(), stmt.text, macros_.define(stmt));
      break;
    case StmtKind::call_block:
      run_call_block(stmt);
      break;
    case StmtKind::scope:
    case StmtKind::with:
      return run_scope(stmt);
    case StmtKind::filter_block:
      runtime_.captured = captured_body(stmt);
      output_.print(expressions_.eval(*stmt.value));
      break;
    case StmtKind::loop_break:
      return Flow::loop_break;
    case StmtKind::loop_continue:
      return Flow::loop_continue;
  }
  return Flow::normal;
}

std::string_view Statements::captured_body(const Stmt& stmt) {
  return runtime_.keep(capture(stmt.body, variables_.make_frame(variables_.innermost(), stmt.hidden)));
}

void Statements::run_set_block(const Stmt& stmt) {
  runtime_.captured = captured_body(stmt);
  assign(*stmt.target, stmt.value ? expressions_.eval(*stmt.value) : Value(runtime_.captured));
}

Flow Statements::run_branch(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches)
    if (truthy(expressions_.eval(*branch.condition))) return run_block(branch.body);
  return run_block(stmt.otherwise);
}

Flow Statements::run_scope(const Stmt& stmt) {
  Frame* const inner = variables_.make_frame(variables_.innermost(), stmt.hidden);
  for (size_t i = 0; i < stmt.parameters.size(); ++i)
    variables_.set(*inner, stmt.parameters[i], expressions_.eval(*stmt.defaults[i]));
  Frame* const outer = variables_.enter(inner);
  const Flow flow = run_block(stmt.body);
  variables_.enter(outer);
  return flow;
}

void Statements::run_call_block(const Stmt& stmt) {
  const Value caller = macros_.define(stmt);
  const Value value = expressions_.eval_call(*stmt.value, &caller);
  const auto text = as_text(value);
  if (!text) runtime_.fail(fmt::format("a `call` block gave '{}', not a text", type_name(value)));
  output_.emit(*text);
}

void Statements::assign(const Expr& target, const Value& value) {
  runtime_.at = target.at;
  if (target.kind == ExprKind::name) return variables_.set(*variables_.innermost(), target.text, value);
  if (target.kind == ExprKind::attribute) {
    const Value object = variables_.find(target.items[0]->text);
    auto* const* space = std::get_if<Namespace*>(&object);
    if (!space)
      runtime_.fail(
          fmt::format("`{}` is not a namespace, so its parts cannot be set", target.items[0]->text));
    if (target.text.starts_with('_')) runtime_.fail(fmt::format("a namespace cannot hold `{}`", target.text));
    runtime_.work();
    return (*space)->items.set(target.text, value);
  }
  const auto parts = iterate(runtime_, value);
  if (parts.size() != target.items.size())
    runtime_.fail(fmt::format("{} values for {} names", parts.size(), target.items.size()));
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.items[i], parts[i]);
}

}  // namespace temper::jinja
