#pragma once
// Walks the members of one large JSON object (safetensors header, weight_map) without building it: an ordered
// object costs quadratic time in its number of keys, and these come with tens of thousands from outside.
// Linear time, no recursion; duplicate keys are refused here, each value is left as text for `parse_json`.

#include <functional>
#include <string>
#include <string_view>

namespace temper {

/// Largest text of one member value that `parse_member` accepts.
inline constexpr int64_t kMaxMemberBytes = 256 << 10;

/// Calls `member(key, text of the value)` in order. Anything but one object is Error(Exit::data) at `source`.
void for_each_member(std::string_view object, const std::string& source,
                     const std::function<void(const std::string& key, std::string_view value)>& member);

/// A name from outside in quotes, escaped and cut to a readable length, for messages.
std::string quote_name(std::string_view name);

}  // namespace temper
