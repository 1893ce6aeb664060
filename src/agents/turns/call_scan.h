#pragma once
// One call of a tool in a text that grows: each byte is looked at once, so whatever a model says costs what
// its length does.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/agents/turns/turn_format.h"
#include "src/agents/turns/turn_text.h"
#include "src/core/json.h"

namespace temper {

inline constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";

/// What types the arguments of a request's tools may have, by tool and argument.
class ArgumentTypes {
 public:
  explicit ArgumentTypes(const Json& tools);
  /// The value that `said` means: of a text all of it, else as JSON (or as Python writes true, false, null).
  Json value(const std::string& tool, const std::string& argument, const std::string& said) const;

 private:
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> types_;
};

class CallScan {
 public:
  /// `types`, for xml_tags, outlives it.
  CallScan(CallSyntax syntax, const ArgumentTypes& types);

  enum class Found { open, call, text };
  /// `text` begins where the call does (tags: with the opening one), and is what it was, with more behind it.
  /// open: more is needed. call: the call ends at end(). text: what lies before end() is none.
  Found read(std::string_view text);
  size_t end() const { return at_; }
  ToolCall take() { return std::move(call_); }

 private:
  enum class At { open, object, close, function, function_name, part, argument, value, call_close };
  enum class Step { more, next, fail };

  Step step(std::string_view text);
  Step skip(std::string_view text, std::string_view literal, At next);
  Step read_object(std::string_view text);
  Step read_name(std::string_view text, std::string& name, At next);
  Step read_part(std::string_view text);
  Step read_value(std::string_view text);
  Found finish(std::string_view text);
  bool take_object(std::string_view text);
  bool take_parts();

  CallSyntax syntax_;
  const ArgumentTypes& types_;
  At state_;
  size_t at_ = 0;
  size_t begin_ = 0;  // of a name or value
  size_t object_begin_ = 0, object_end_ = 0;
  int depth_ = 0;
  bool in_text_ = false, escaped_ = false, done_ = false;
  std::string argument_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> order_;
  ToolCall call_;
};

}  // namespace temper
