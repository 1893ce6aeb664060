#include "src/data/jinja/runtime.h"

#include "src/core/check.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {

void Runtime::fail(const std::string& why) const {
  temper::fail(Exit::data, {.what = "the chat template cannot be rendered",
                            .where = describe(source_, at),
                            .why = why,
                            .fix = "check that the messages have the keys and types this template expects, "
                                   "or change the template"});
}

void Runtime::fail_undefined(const Undefined& value) const {
  if (!value.owner) fail(fmt::format("`{}` is undefined", value.name));
  if (value.owner[0] == '\0') fail(std::string(value.name));
  fail(fmt::format("a value of type '{}' has no attribute or element `{}`", value.owner, value.name));
}

void Runtime::fail_raised(std::string_view message) const {
  temper::fail(Exit::data, {.what = "the chat template refuses this conversation",
                            .where = describe(source_, at),
                            .why = std::string(message),
                            .fix = "change the messages so that the template accepts them"});
}

void Runtime::fail_steps() const {
  fail(fmt::format("the limit of {} steps is reached: the template does not end, or does far too much",
                   limits_.steps));
}

void Runtime::reserve(size_t bytes) {
  if (bytes > static_cast<size_t>(limits_.memory_bytes) ||
      memory_ + static_cast<int64_t>(bytes) > limits_.memory_bytes)
    fail(fmt::format("the limit of {} bytes for values is reached ({} in use, {} more wanted)",
                     limits_.memory_bytes, memory_, bytes));
  memory_ += static_cast<int64_t>(bytes);
  handle(bytes);
}

std::string_view Runtime::keep(std::string text) {
  reserve(text.size() + sizeof(std::string));
  return texts_.emplace_back(std::move(text));
}

Value Runtime::sequence(Form form, std::vector<Value> items) {
  reserve(items.size() * sizeof(Value) + sizeof(Sequence));
  return &sequences_.emplace_back(Sequence{.form = form, .items = std::move(items)});
}

Value Runtime::dict(Dict dict) {
  reserve(dict.items.size() * sizeof(dict.items[0]) + sizeof(Dict));
  return &dicts_.emplace_back(std::move(dict));
}

Value Runtime::method(const Value& self, std::string_view name) {
  reserve(sizeof(Method));
  return &methods_.emplace_back(Method{.self = self, .name = name});
}

Value Runtime::cycler(std::vector<Value> items) {
  reserve(items.size() * sizeof(Value) + sizeof(Cycler));
  return &cyclers_.emplace_back(Cycler{.items = std::move(items)});
}

Value Runtime::joiner(std::string_view between) {
  reserve(sizeof(Joiner));
  return &joiners_.emplace_back(Joiner{.between = between});
}

Namespace* Runtime::make_namespace() {
  reserve(sizeof(Namespace));
  return &namespaces_.emplace_back();
}

}  // namespace temper::jinja
