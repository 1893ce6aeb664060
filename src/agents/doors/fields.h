#pragma once
// Fields of a request's body: each is read with its type and range, or the client hears its name.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agents/turns/request_error.h"
#include "src/core/json.h"

namespace temper {

class Fields {
 public:
  /// `ignore`: names that count as absent. The body outlives it. RequestError where it is no object.
  Fields(const Json& body, const std::set<std::string>& ignore);

  /// Null where the field is absent, null or ignored.
  const Json& at(const std::string& name) const;
  bool has(const std::string& name) const { return !at(name).is_null(); }
  std::optional<std::string> text(const std::string& name) const;
  bool flag(const std::string& name, bool fallback = false) const;
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high) const;
  std::optional<double> number(const std::string& name, double low, double high) const;
  /// A text, or a list of them.
  std::vector<std::string> texts(const std::string& name, size_t most) const;
  std::vector<int32_t> ids(const std::string& name) const;

  /// What the field would need is not to be had.
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  const Json& body_;
  const std::set<std::string>& ignore_;
};

/// The ids in a list, or RequestError.
std::vector<int32_t> token_ids(const Json& list, const std::string& name);

}  // namespace temper
