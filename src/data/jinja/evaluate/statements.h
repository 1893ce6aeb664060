#pragma once
// Statements: output, assignment, branches, blocks.

#include "src/data/jinja/evaluate/expressions.h"

namespace temper::jinja {

/// How a block ended.
enum class Flow : uint8_t { normal, loop_break, loop_continue };

class Statements {
 public:
  Statements(Runtime& runtime, Variables& variables, Output& output, Expressions& expressions, Macros& macros,
             Loops& loops)
      : runtime_(runtime),
        variables_(variables),
        output_(output),
        expressions_(expressions),
        macros_(macros),
        loops_(loops) {}

  Flow run_block(const Block& block);
  /// Text of a block that runs in a frame of its own.
  std::string capture(const Block& block, Frame* frame);
  void assign(const Expr& target, const Value& value);

 private:
  Flow run_statement(const Stmt& stmt);
  void run_set_block(const Stmt& stmt);
  Flow run_branch(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  Flow run_scope(const Stmt& stmt);
  /// Text of the body of a statement.
  std::string_view captured_body(const Stmt& stmt);

  Runtime& runtime_;
  Variables& variables_;
  Output& output_;
  Expressions& expressions_;
  Macros& macros_;
  Loops& loops_;
};

}  // namespace temper::jinja
