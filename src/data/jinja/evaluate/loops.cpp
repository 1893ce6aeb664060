#include "src/data/jinja/evaluate/loops.h"

#include "src/core/check.h"
#include "src/data/jinja/evaluate/expressions.h"
#include "src/data/jinja/evaluate/statements.h"

namespace temper::jinja {

Flow Loops::run(const Stmt& stmt, const Value& iterable, Frame* outer, int64_t depth0) {
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
  variables_.enter(variables_.make_frame(loop.outer, stmt.hidden_otherwise));
  const Flow flow = statements_.run_block(stmt.otherwise);
  variables_.enter(loop.outer);
  return flow;
}

void Loops::run_rounds(Loop& loop, bool& completed) {
  Frame* const inner = variables_.make_frame(loop.outer);
  Flow flow = Flow::normal;
  while (flow != Flow::loop_break && advance(loop)) {
    inner->variables.clear();
    variables_.hide(*inner, loop.statement->hidden);
    variables_.enter(inner);
    variables_.set(*inner, "loop", &loop);
    statements_.assign(*loop.statement->target, *loop.current);
    flow = statements_.run_block(loop.statement->body);
    completed |= flow == Flow::normal;
    variables_.enter(loop.outer);
  }
}

/// The next item of the source that the loop's condition lets through.
std::optional<Value> Loops::next_item(Loop& loop) {
  while (loop.next < loop.source.size()) {
    const Value item = loop.source[loop.next++];
    if (!loop.filtered) return item;
    Frame* const here = variables_.enter(variables_.make_frame(loop.outer));
    statements_.assign(*loop.statement->target, item);
    const bool accepted = truthy(expressions_.eval(*loop.statement->condition));
    variables_.enter(here);
    if (accepted) return item;
  }
  return std::nullopt;
}

bool Loops::peek(Loop& loop) {
  if (!loop.after) loop.after = next_item(loop);
  return loop.after.has_value();
}

bool Loops::advance(Loop& loop) {
  if (!peek(loop)) return false;
  ++loop.index0;
  loop.before = std::exchange(loop.current, std::exchange(loop.after, std::nullopt));
  return true;
}

int64_t Loops::length(Loop& loop) {
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

Value Loops::attribute(Loop& loop, std::string_view name) {
  if (name == "index0") return loop.index0;
  if (name == "index") return loop.index0 + 1;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !peek(loop);
  if (name == "length") return length(loop);
  if (name == "revindex") return length(loop) - loop.index0;
  if (name == "revindex0") return length(loop) - loop.index0 - 1;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "previtem")
    return loop.before ? *loop.before : Value(Undefined{.owner = "", .name = "there is no previous item"});
  if (name == "nextitem")
    return peek(loop) ? *loop.after : Value(Undefined{.owner = "", .name = "there is no next item"});
  if (name == "cycle" || name == "changed") return runtime_.method(&loop, name);
  return Undefined{.owner = "loop", .name = name};
}

Value Loops::call(Loop& loop, const Arguments& arguments) {
  if (!loop.statement->recursive) runtime_.fail("only a loop with `recursive` can be called");
  const Bound bound(runtime_, "loop", arguments, {"iterable"}, 1);
  return output_.of_call("loops", loop.outer,
                         [&] { run(*loop.statement, *bound[0], loop.outer, loop.depth0 + 1); });
}

Value Loops::call_method(Loop& loop, std::string_view name, const Arguments& arguments) {
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
