#pragma once
// Walks the syntax tree of one template for one rendering: expressions and statements, with the variables,
// macros, loops and the text that they share.

#include "src/data/jinja/evaluate/statements.h"

namespace temper::jinja {

class Evaluator {
 public:
  explicit Evaluator(Runtime& runtime)
      : runtime_(runtime),
        variables_(runtime),
        output_(runtime, variables_),
        macros_(runtime, variables_, output_, expressions_, statements_),
        loops_(runtime, variables_, output_, expressions_, statements_),
        expressions_(runtime, variables_, macros_, loops_),
        statements_(runtime, variables_, output_, expressions_, macros_, loops_) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  std::string run(const Program& program, const Json& variables);

 private:
  Runtime& runtime_;
  Variables variables_;
  Output output_;
  Macros macros_;
  Loops loops_;
  Expressions expressions_;
  Statements statements_;
};

}  // namespace temper::jinja
