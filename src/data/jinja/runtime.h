#pragma once
// One rendering: owner of all values made on the way, keeper of the limits, and the place of errors.
// Everything that may take long or much passes through work() or reserve() first, so a hostile template ends
// in a named error.

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/jinja/keys.h"
#include "src/data/jinja/lexer.h"
#include "src/data/jinja/limits.h"
#include "src/data/jinja/value.h"

namespace temper::jinja {

class Runtime {
 public:
  Runtime(const std::string& source, const TemplateLimits& limits) : source_(source), limits_(limits) {}

  /// Error at the node being evaluated.
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail_undefined(const Undefined& value) const;
  [[noreturn]] void fail_raised(std::string_view message) const;

  void work(int64_t steps = 1) {
    steps_ += steps;
    if (steps_ > limits_.steps) fail_steps();
  }
  /// Before reading or moving so many bytes.
  void handle(size_t bytes) { work(static_cast<int64_t>(bytes / 128)); }
  /// Before making a value of so many bytes.
  void reserve(size_t bytes);

  std::string_view keep(std::string text);
  Value sequence(Form form, std::vector<Value> items);
  Value list(std::vector<Value> items) { return sequence(Form::list, std::move(items)); }
  Value dict(std::vector<std::pair<Value, Value>> items) { return dict(Dict{.items = std::move(items)}); }
  Value method(const Value& self, std::string_view name);
  Value dict(Dict dict);
  Namespace* make_namespace();
  Value cycler(std::vector<Value> items);
  Value joiner(std::string_view between);

  const TemplateLimits& limits() const { return limits_; }

  Position at;
  std::string_view date;      // the variable date_string
  std::string_view captured;  // the block whose filters are applied

 private:
  [[noreturn]] void fail_steps() const;

  const std::string& source_;
  const TemplateLimits limits_;
  int64_t steps_ = 0;
  int64_t memory_ = 0;
  std::deque<std::string> texts_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Method> methods_;
  std::deque<Cycler> cyclers_;
  std::deque<Joiner> joiners_;
};

}  // namespace temper::jinja
