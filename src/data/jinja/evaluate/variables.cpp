#include "src/data/jinja/evaluate/variables.h"

#include "src/data/jinja/library.h"

namespace temper::jinja {

Frame* Variables::make_frame(Frame* parent, const std::vector<std::string>& hidden) {
  runtime_.reserve(sizeof(Frame));
  Frame& frame = frames_.emplace_back(Frame{.parent = parent, .variables = {}});
  hide(frame, hidden);
  return &frame;
}

void Variables::hide(Frame& frame, const std::vector<std::string>& names) {
  runtime_.work(static_cast<int64_t>(names.size()));
  for (const auto& name : names) frame.variables.set(name, Undefined{.owner = nullptr, .name = name});
}

void Variables::set(Frame& frame, std::string_view name, const Value& value) {
  runtime_.work();
  frame.variables.set(name, value);
}

Value Variables::find(const std::string& name) const {
  for (const Frame* frame = innermost_; frame; frame = frame->parent) {
    runtime_.work();
    if (const Value* value = frame->variables.find(name)) return *value;
  }
  if (const auto function = find_function(name)) return *function;
  return Undefined{.owner = nullptr, .name = name};
}

}  // namespace temper::jinja
