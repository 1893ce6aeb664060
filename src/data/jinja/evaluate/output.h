#pragma once
// The text that statements write: the template's own, or that of a block whose text is a value.

#include <string>
#include <string_view>
#include <utility>

#include "src/data/jinja/evaluate/variables.h"

namespace temper::jinja {

class Output {
 public:
  Output(Runtime& runtime, Variables& variables) : runtime_(runtime), variables_(variables) {}

  void emit(std::string_view text);
  void print(const Value& value);
  /// Text of what `run` emits, in this frame.
  template <typename Run>
  std::string captured(Frame* frame, Run run) {
    std::string text;
    std::string* const outer_text = std::exchange(out_, &text);
    Frame* const outer_frame = variables_.enter(frame);
    run();
    out_ = outer_text;
    variables_.enter(outer_frame);
    return text;
  }
  /// The same of what an expression calls: `what` call each other to a limited depth.
  template <typename Run>
  Value of_call(const char* what, Frame* frame, Run run) {
    enter_call(what);
    std::string text = captured(frame, run);
    --calls_;
    return runtime_.keep(std::move(text));
  }

 private:
  void enter_call(const char* what);

  Runtime& runtime_;
  Variables& variables_;
  std::string* out_ = nullptr;
  int calls_ = 0;
};

}  // namespace temper::jinja
