#pragma once
// Syntax tree of a template. Nodes are plain data, owned downwards, never changed after parsing, so one tree
// serves any number of renderings at once. `height` bounds every recursion over expressions.

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "src/data/jinja/lexer.h"

namespace temper::jinja {

struct Filter;
struct Test;

/// Brackets, operators and blocks inside each other.
inline constexpr int kMaxNesting = 200;

enum class ExprKind : uint8_t {
  constant,     // literal
  name,         // text
  list,         // items
  tuple,        // items
  dict,         // items: key, value, key, value, ...
  attribute,    // items[0].text
  subscript,    // items[0][items[1]]
  slice,        // items: start, stop, step (each may be null); only inside a subscript
  call,         // items[0](items[1...])
  filter,       // items[0] | filter(items[1...])
  test,         // items[0] is test(items[1...])
  negate,       // -items[0]
  plus,         // +items[0]
  logical_not,  // not items[0]
  logical_and,
  logical_or,
  binary,       // items[0] ops[0] items[1]
  concat,       // items joined by ~
  compare,      // items[0] ops[0] items[1] ops[1] items[2] ...
  conditional,  // items: condition, then, else (may be null)
  captured,     // the text of the block whose filters are applied
};

enum class Op : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
using Literal = std::variant<std::monostate, bool, int64_t, double, std::string>;

struct Expr {
  ExprKind kind;
  Position at;
  int height = 1;
  std::string text = {};
  Literal literal = {};
  std::vector<ExprPtr> items = {};
  std::vector<std::string> keywords =
      {};                     // names of the last items of a call, filter or test but the next two
  bool spread = false;        // behind them an item whose items are arguments (*items),
  bool spread_named = false;  // and one whose keys name arguments (**items)
  std::vector<Op> ops = {};
  const Filter* filter = nullptr;  // null: one that does not exist, an error where it is applied
  const Test* test = nullptr;      // the same
};

enum class StmtKind : uint8_t {
  data,          // text
  print,         // value
  set,           // target = value
  set_block,     // target = body, through the filters of value if there is one
  branch,        // branches, otherwise
  loop,          // for target in value if condition: body, else: otherwise
  macro,         // text(parameters = defaults): body
  call_block,    // value, a call, given the macro (parameters = defaults): body as `caller`
  scope,         // body with its own variables (generation)
  filter_block,  // body through the filters of value
  with,          // parameters = defaults: body
  loop_break,
  loop_continue,
};

struct Stmt;
using Block = std::vector<Stmt>;

struct Branch {
  ExprPtr condition;
  Block body;
};

struct Stmt {
  StmtKind kind;
  Position at;
  std::string text = {};
  ExprPtr target = nullptr;
  ExprPtr value = nullptr;
  ExprPtr condition = nullptr;
  std::vector<Branch> branches = {};
  Block body = {};
  Block otherwise = {};
  bool recursive = false;  // of a loop: it may be called with another list
  // A macro's body reads these names, which are no parameters.
  bool takes_caller = false, takes_varargs = false, takes_kwargs = false;
  std::vector<std::string> parameters = {};
  std::vector<ExprPtr> defaults = {};              // one per parameter, null: none
  std::vector<std::string> hidden = {};            // see hide_names; in the frame of body
  std::vector<std::string> hidden_otherwise = {};  // and of a loop's otherwise
};

struct Program {
  Block body;
  std::vector<std::string> hidden = {};
};

/// Fills in `hidden`: the names that are undefined in a scope until it sets them, even if a variable of that
/// name was given. In Jinja2 those are the names that a scope assigns outside of any `if` before it reads
/// them itself: they belong to the scope from its start, also for the loops and macros in it that come
/// earlier.
void hide_names(Program& program, const std::string& source);

/// Fills in what macros take beside their parameters, and refuses filters and tests that do not exist, as
/// Jinja2 does: but for those behind an `if`, which are an error only when they are applied.
void check_names(Program& program, const std::string& source);

/// Exit::data with line and column for anything outside of the supported part.
Program parse_template(std::string_view text, const std::string& source);

}  // namespace temper::jinja
