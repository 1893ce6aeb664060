#pragma once
// Strict JSON for everything that comes from outside (model folders, prompts, manifests).
// On top of nlohmann-json: duplicate keys, deep nesting, oversized documents, numbers that overflow and
// invalid UTF-8 are refused with the byte offset. Key order is kept (chat templates and exports show it).

#include <cstdint>
#include <string>
#include <string_view>

#include "src/core/json/members.h"

namespace temper {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  int depth = 64;
  int64_t bytes = int64_t{256} << 20;
};

/// Parses `text`; on any defect throws Error(Exit::data) whose `where` is `source` (a path, or path:line).
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits = {});

/// Reads and parses a whole file (size bounded by limits.bytes).
Json read_json_file(const std::string& path, const JsonLimits& limits = {});

/// "an array", "a number": for messages.
std::string json_kind(const Json& value);

/// Adds a member whose key the object does not have: Json's own way looks through all keys that it has.
Json& append_member(Json& object, std::string key, Json value);

/// One line of JSON, floats with as many digits as give the same bits back, non-finite numbers as null.
/// Invalid UTF-8 in strings is written as U+FFFD.
std::string dump_json_line(const Json& value);

}  // namespace temper
