#pragma once
// Macros of a template, and the blocks that are given to one as `caller`.

#include <deque>
#include <string_view>
#include <unordered_map>

#include "src/data/jinja/evaluate/output.h"
#include "src/data/jinja/library.h"

namespace temper::jinja {

class Expressions;
class Statements;

struct Macro {
  const Stmt* definition;
  Frame* scope;
};

class Macros {
 public:
  Macros(Runtime& runtime, Variables& variables, Output& output, Expressions& expressions,
         Statements& statements)
      : runtime_(runtime),
        variables_(variables),
        output_(output),
        expressions_(expressions),
        statements_(statements) {}

  /// The macro that the statement defines, in the innermost frame.
  Macro* define(const Stmt& stmt);
  Value call(const Macro& macro, const Arguments& arguments);

 private:
  /// Named arguments of a call, until a parameter takes them.
  using Named = std::unordered_map<std::string_view, Value>;
  /// Parameters that arguments are given for; returns the others.
  std::vector<size_t> set_given(const Stmt& definition, const Arguments& arguments, Named& named,
                                Frame& frame);
  void set_specials(const Stmt& definition, const Arguments& arguments, Named& named, Frame& frame);

  Runtime& runtime_;
  Variables& variables_;
  Output& output_;
  Expressions& expressions_;
  Statements& statements_;
  std::deque<Macro> macros_;
};

}  // namespace temper::jinja
