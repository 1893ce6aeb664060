// Statements of the evaluator: output, assignment, branches, loops, blocks.
#include <algorithm>

#include "src/core/check.h"
#include "src/data/jinja/evaluator.h"

namespace temper::jinja {

std::string Evaluator::run(const Program& program, const Json& variables) {
  frame_ = make_frame(nullptr);
  for (const auto& [name, value] : variables.items())
    set(*frame_, runtime_.keep(name), from_json(runtime_, value));
  if (const Value* date = frame_->variables.find("date_string"))
    if (const auto text = as_text(*date)) runtime_.date = *text;
  return capture(program.body, make_frame(frame_, program.hidden));
}

Frame* Evaluator::make_frame(Frame* parent, const std::vector<std::string>& hidden) {
  runtime_.reserve(sizeof(Frame));
  Frame& frame = frames_.emplace_back(Frame{.parent = parent, .variables = {}});
  hide(frame, hidden);
  return &frame;
}

void Evaluator::hide(Frame& frame, const std::vector<std::string>& names) {
  runtime_.work(static_cast<int64_t>(names.size()));
  for (const auto& name : names) frame.variables.set(name, Undefined{.owner = nullptr, .name = name});
}

void Evaluator::set(Frame& frame, std::string_view name, const Value& value) {
  runtime_.work();
  frame.variables.set(name, value);
}

void Evaluator::emit(std::string_view text) {
  runtime_.handle(text.size());
  const int64_t limit = runtime_.limits().output_bytes;
  if (static_cast<int64_t>(out_->size() + text.size()) > limit)
    runtime_.fail(fmt::format("the rendered text is longer than the limit of {} bytes", limit));
  out_->append(text);
}

void Evaluator::print(const Value& value) {
  if (const auto text = as_text(value)) return emit(*text);
  emit(to_text(runtime_, value));
}

template <typename Run>
std::string Evaluator::captured(Frame* frame, Run run) {
  std::string text;
  std::string* const outer_text = std::exchange(out_, &text);
  Frame* const outer_frame = std::exchange(frame_, frame);
  run();
  out_ = outer_text;
  frame_ = outer_frame;
  return text;
}

std::string Evaluator::capture(const Block& block, Frame* frame) {
  return captured(frame, [&] { run_block(block); });
}

Evaluator::Flow Evaluator::run_block(const Block& block) {
  for (const Stmt& stmt : block) {
    runtime_.at = stmt.at;
    runtime_.work();
    if (const Flow flow = run_statement(stmt); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_statement(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::data:
      emit(stmt.text);
      break;
    case StmtKind::print:
      print(eval(*stmt.value));
      break;
    case StmtKind::set:
      assign(*stmt.target, eval(*stmt.value));
      break;
    case StmtKind::set_block:
      run_set_block(stmt);
      break;
    case StmtKind::branch:
      return run_branch(stmt);
    case StmtKind::loop:
      return run_loop(stmt, eval(*stmt.value), frame_, 0);
    case StmtKind::macro:
      runtime_.reserve(sizeof(Macro));
      set(*frame_, stmt.text, &macros_.emplace_back(Macro{.definition = &stmt, .scope = frame_}));
      break;
    case StmtKind::call_block:
      run_call_block(stmt);
      break;
    case StmtKind::scope:
    case StmtKind::with:
      return run_scope(stmt);
    case StmtKind::filter_block: {
      const std::string_view text = runtime_.keep(capture(stmt.body, make_frame(frame_, stmt.hidden)));
      runtime_.captured = text;
      print(eval(*stmt.value));
      break;
    }
    case StmtKind::loop_break:
      return Flow::loop_break;
    case StmtKind::loop_continue:
      return Flow::loop_continue;
  }
  return Flow::normal;
}

void Evaluator::run_set_block(const Stmt& stmt) {
  runtime_.captured = runtime_.keep(capture(stmt.body, make_frame(frame_, stmt.hidden)));
  assign(*stmt.target, stmt.value ? eval(*stmt.value) : Value(runtime_.captured));
}

Evaluator::Flow Evaluator::run_branch(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches)
    if (truthy(eval(*branch.condition))) return run_block(branch.body);
  return run_block(stmt.otherwise);
}

Evaluator::Flow Evaluator::run_scope(const Stmt& stmt) {
  Frame* const outer = frame_;
  Frame* const inner = make_frame(outer, stmt.hidden);
  for (size_t i = 0; i < stmt.parameters.size(); ++i)
    set(*inner, stmt.parameters[i], eval(*stmt.defaults[i]));
  frame_ = inner;
  const Flow flow = run_block(stmt.body);
  frame_ = outer;
  return flow;
}

void Evaluator::run_call_block(const Stmt& stmt) {
  runtime_.reserve(sizeof(Macro));
  const Value caller = &macros_.emplace_back(Macro{.definition = &stmt, .scope = frame_});
  const Value value = eval_call(*stmt.value, &caller);
  const auto text = as_text(value);
  if (!text) runtime_.fail(fmt::format("a `call` block gave '{}', not a text", type_name(value)));
  emit(*text);
}

Evaluator::Flow Evaluator::run_loop(const Stmt& stmt, const Value& iterable, Frame* outer, int64_t depth0) {
  runtime_.at = stmt.at;
  std::vector<Value> source = iterate(runtime_, iterable);
  runtime_.reserve(sizeof(Loop) + source.size() * sizeof(Value));
  Loop& loop = loops_.emplace_back(Loop{.statement = &stmt,
                                        .outer = outer,
                                        .depth0 = depth0,
                                        .source = std::move(source),
                                        .filtered = stmt.condition != nullptr,
                                        .before = {},
                                        .current = {},
                                        .after = {},
                                        .length = {},
                                        .changed = {}});
  // As in Jinja2, `else` runs unless a round came to its end without break or continue.
  bool completed = false;
  run_rounds(loop, completed);
  if (completed || stmt.otherwise.empty()) return Flow::normal;
  frame_ = make_frame(loop.outer, stmt.hidden_otherwise);
  const Flow flow = run_block(stmt.otherwise);
  frame_ = loop.outer;
  return flow;
}

Evaluator::Flow Evaluator::run_rounds(Loop& loop, bool& completed) {
  Frame* const inner = make_frame(loop.outer);
  Flow flow = Flow::normal;
  while (flow != Flow::loop_break && advance(loop)) {
    inner->variables.clear();
    hide(*inner, loop.statement->hidden);
    frame_ = inner;
    set(*inner, "loop", &loop);
    assign(*loop.statement->target, *loop.current);
    flow = run_block(loop.statement->body);
    completed |= flow == Flow::normal;
    frame_ = loop.outer;
  }
  return flow;
}

void Evaluator::assign(const Expr& target, const Value& value) {
  runtime_.at = target.at;
  if (target.kind == ExprKind::name) return set(*frame_, target.text, value);
  if (target.kind == ExprKind::attribute) {
    const Value object = eval_name(*target.items[0]);
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

/// The next item of the source that the loop's condition lets through.
std::optional<Value> Evaluator::next_item(Loop& loop) {
  while (loop.next < loop.source.size()) {
    const Value item = loop.source[loop.next++];
    if (!loop.filtered) return item;
    Frame* const here = std::exchange(frame_, make_frame(loop.outer));
    assign(*loop.statement->target, item);
    const bool accepted = truthy(eval(*loop.statement->condition));
    frame_ = here;
    if (accepted) return item;
  }
  return std::nullopt;
}

bool Evaluator::peek(Loop& loop) {
  if (!loop.after) loop.after = next_item(loop);
  return loop.after.has_value();
}

bool Evaluator::advance(Loop& loop) {
  if (!peek(loop)) return false;
  ++loop.index0;
  loop.before = std::exchange(loop.current, std::exchange(loop.after, std::nullopt));
  return true;
}

int64_t Evaluator::loop_length(Loop& loop) {
  if (loop.length) return *loop.length;
  if (loop.filtered) {
    std::vector<Value> rest;
    while (auto item = next_item(loop)) rest.push_back(*item);
    loop.source = std::move(rest);
    loop.next = 0;
    loop.filtered = false;
    loop.length = static_cast<int64_t>(loop.source.size()) + loop.index0 + 1 + (loop.after ? 1 : 0);
  } else {
    loop.length = static_cast<int64_t>(loop.source.size());
  }
  return *loop.length;
}

Value Evaluator::loop_attribute(Loop& loop, std::string_view name) {
  if (name == "index0") return loop.index0;
  if (name == "index") return loop.index0 + 1;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !peek(loop);
  if (name == "length") return loop_length(loop);
  if (name == "revindex") return loop_length(loop) - loop.index0;
  if (name == "revindex0") return loop_length(loop) - loop.index0 - 1;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "previtem")
    return loop.before ? *loop.before : Value(Undefined{.owner = "", .name = "there is no previous item"});
  if (name == "nextitem")
    return peek(loop) ? *loop.after : Value(Undefined{.owner = "", .name = "there is no next item"});
  if (name == "cycle" || name == "changed") return runtime_.method(&loop, name);
  return Undefined{.owner = "loop", .name = name};
}

/// What a recursive loop writes over other items.
Value Evaluator::call_loop(Loop& loop, const Arguments& arguments) {
  if (!loop.statement->recursive) runtime_.fail("only a loop with `recursive` can be called");
  const Bound bound(runtime_, "loop", arguments, {"iterable"}, 1);
  enter_call("loops");
  std::string text =
      captured(loop.outer, [&] { run_loop(*loop.statement, *bound[0], loop.outer, loop.depth0 + 1); });
  --calls_;
  return runtime_.keep(std::move(text));
}

Value Evaluator::call_loop_method(Loop& loop, std::string_view name, const Arguments& arguments) {
  const auto& values = arguments.positional;
  if (!arguments.named.empty()) runtime_.fail(fmt::format("`loop.{}` takes no named arguments", name));
  if (name == "cycle") {
    if (values.empty()) runtime_.fail("`loop.cycle` wants values");
    return values[static_cast<size_t>(loop.index0) % values.size()];
  }
  const Value now = runtime_.sequence(Form::tuple, values);
  const bool changed = !loop.changed || !equals(runtime_, *loop.changed, now);
  loop.changed = now;
  return changed;
}

}  // namespace temper::jinja
