#pragma once
// Walks the syntax tree of one template for one rendering. Variables live in frames: the program, every loop,
// macro call and block with its own variables have one; a name is looked for from the inside out, an
// assignment always goes to the innermost frame (so nothing set in a loop is seen behind it, as in Jinja2).
// The frame of a loop is emptied before each round, and a macro sees the frames around its definition.

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/data/jinja/ast.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"

namespace temper::jinja {

struct Frame {
  Frame* parent;
  NameTable variables;
};

struct Macro {
  const Stmt* definition;
  Frame* scope;
};
/// Named arguments of a call, until a parameter takes them.
using NamedArguments = std::unordered_map<std::string_view, Value>;

/// State of a running `for`. Items pass the loop's condition one by one, as late as possible.
struct Loop {
  const Stmt* statement;
  Frame* outer;
  int64_t depth0;  // of the calls of a recursive loop that led here
  std::vector<Value> source;
  size_t next = 0;
  bool filtered = false;
  int64_t index0 = -1;
  std::optional<Value> before, current, after;
  std::optional<int64_t> length;
  std::optional<Value> changed;  // arguments of the last loop.changed()
};

class Evaluator {
 public:
  explicit Evaluator(Runtime& runtime) : runtime_(runtime) {}
  std::string run(const Program& program, const Json& variables);

 private:
  enum class Flow : uint8_t { normal, loop_break, loop_continue };
  class Descent;

  Flow run_block(const Block& block);
  Flow run_statement(const Stmt& stmt);
  void emit(std::string_view text);
  void print(const Value& value);
  void run_set_block(const Stmt& stmt);
  Flow run_branch(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, const Value& iterable, Frame* outer, int64_t depth0);
  void run_call_block(const Stmt& stmt);
  Flow run_rounds(Loop& loop, bool& completed);
  Flow run_scope(const Stmt& stmt);
  /// Text of a block that runs in a frame of its own.
  std::string capture(const Block& block, Frame* frame);
  /// Text of what `run` emits.
  template <typename Run>
  std::string captured(Frame* frame, Run run);
  void assign(const Expr& target, const Value& value);
  void set(Frame& frame, std::string_view name, const Value& value);
  Frame* make_frame(Frame* parent, const std::vector<std::string>& hidden = {});
  void hide(Frame& frame, const std::vector<std::string>& names);

  bool advance(Loop& loop);
  bool peek(Loop& loop);
  std::optional<Value> next_item(Loop& loop);
  int64_t loop_length(Loop& loop);
  Value loop_attribute(Loop& loop, std::string_view name);
  Value call_loop_method(Loop& loop, std::string_view name, const Arguments& arguments);

  Value eval(const Expr& expr);
  Value eval_here(const Expr& expr);
  Value eval_operation(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_items(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_attribute(const Expr& expr);
  Value eval_subscript(const Expr& expr);
  Value eval_call(const Expr& expr, const Value* caller = nullptr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_conditional(const Expr& expr);
  Arguments eval_arguments(const Expr& expr);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  void set_specials(const Stmt& definition, const Arguments& arguments, NamedArguments& named, Frame& frame);
  Value call_loop(Loop& loop, const Arguments& arguments);
  void enter_call(const char* what);

  Runtime& runtime_;
  std::deque<Frame> frames_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
  Frame* frame_ = nullptr;
  std::string* out_ = nullptr;
  int nesting_ = 0;
  int calls_ = 0;
};

}  // namespace temper::jinja
