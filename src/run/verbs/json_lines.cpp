#include "src/run/verbs/json_lines.h"

#include "src/core/check.h"
#include "src/data/dataset.h"

namespace temper {

std::vector<JsonLine> read_json_lines(const std::string& path) {
  const Dataset lines({{path, 1.0}}, 0, /*shuffle=*/false);
  std::vector<JsonLine> list;
  for (int64_t i = 0; i < lines.num_lines(); ++i) list.push_back({lines.line(i), lines.where_line(i)});
  return list;
}

std::vector<int32_t> token_list(const JsonLine& line, int64_t vocab_size) {
  const auto at = line.value.find("tokens");
  if (at == line.value.end() || !at->is_array())
    fail(Exit::data, {.what = "a line has no list \"tokens\"",
                      .where = line.where,
                      .why = at == line.value.end() ? "the key is missing" : "it is " + json_kind(*at),
                      .fix = "write {\"tokens\": [ids]}; `temper tokenize` makes them from text"});
  std::vector<int32_t> tokens;
  for (const Json& id : *at) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size)
      fail(Exit::data, {.what = "\"tokens\" holds something that is no token id",
                        .where = line.where,
                        .why = fmt::format("{}; ids are 0 to {}", id.dump(), vocab_size - 1),
                        .fix = "tokenize with the tokenizer of this model"});
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

}  // namespace temper
