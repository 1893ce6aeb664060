#pragma once
// Running `for` statements: their items, the variable `loop`, and loops that are called with other items.

#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "src/data/jinja/evaluate/output.h"
#include "src/data/jinja/library.h"

namespace temper::jinja {

class Expressions;
class Statements;
enum class Flow : uint8_t;

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

class Loops {
 public:
  Loops(Runtime& runtime, Variables& variables, Output& output, Expressions& expressions,
        Statements& statements)
      : runtime_(runtime),
        variables_(variables),
        output_(output),
        expressions_(expressions),
        statements_(statements) {}

  Flow run(const Stmt& stmt, const Value& iterable, Frame* outer, int64_t depth0);
  /// A member of the variable `loop`.
  Value attribute(Loop& loop, std::string_view name);
  Value call_method(Loop& loop, std::string_view name, const Arguments& arguments);
  /// What a recursive loop writes over other items.
  Value call(Loop& loop, const Arguments& arguments);

 private:
  void run_rounds(Loop& loop, bool& completed);
  bool advance(Loop& loop);
  bool peek(Loop& loop);
  std::optional<Value> next_item(Loop& loop);
  int64_t length(Loop& loop);

  Runtime& runtime_;
  Variables& variables_;
  Output& output_;
  Expressions& expressions_;
  Statements& statements_;
  std::deque<Loop> loops_;
};

}  // namespace temper::jinja
