#pragma once
// Variables live in frames: the program, every loop, macro call and block with its own variables have one; a
// name is looked for from the inside out, an assignment always goes to the innermost frame (so nothing set in
// a loop is seen behind it, as in Jinja2). The frame of a loop is emptied before each round, and a macro sees
// the frames around its definition.

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/jinja/runtime.h"

namespace temper::jinja {

struct Frame {
  Frame* parent;
  NameTable variables;
};

class Variables {
 public:
  explicit Variables(Runtime& runtime) : runtime_(runtime) {}

  Frame* innermost() const { return innermost_; }
  /// Returns the frame that was the innermost one.
  Frame* enter(Frame* frame) { return std::exchange(innermost_, frame); }
  Frame* make_frame(Frame* parent, const std::vector<std::string>& hidden = {});
  void hide(Frame& frame, const std::vector<std::string>& names);
  void set(Frame& frame, std::string_view name, const Value& value);
  /// A variable, a global function, or undefined.
  Value find(const std::string& name) const;

 private:
  Runtime& runtime_;
  std::deque<Frame> frames_;
  Frame* innermost_ = nullptr;
};

}  // namespace temper::jinja
