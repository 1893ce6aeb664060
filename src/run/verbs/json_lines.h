#pragma once
// What verbs read line by line: JSON objects, and token ids in them.

#include <string>
#include <vector>

#include "src/core/json.h"

namespace temper {

/// Every non-empty line of a JSONL file as an object, with "path:line"; of stdin where the path is "-".
struct JsonLine {
  Json value;
  std::string where;
};
std::vector<JsonLine> read_json_lines(const std::string& path);

/// All of stdin; more than 1 GiB is Exit::data.
std::string read_stdin();
std::vector<JsonLine> json_lines_of(const std::string& text, const std::string& source);

/// "tokens" of a line: ids below `vocab_size`.
std::vector<int32_t> token_list(const JsonLine& line, int64_t vocab_size);

}  // namespace temper
