#include "src/run/verbs/json_lines.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/core/check.h"
#include "src/core/split.h"
#include "src/data/dataset.h"

namespace temper {

std::string read_stdin() {
  constexpr size_t kMost = size_t{1} << 30;
  std::string text;
  std::vector<char> window(size_t{1} << 16);
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, window.data(), window.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(Exit::storage, {.what = "stdin cannot be read",
                           .where = "stdin",
                           .why = std::strerror(errno),
                           .fix = "give the name of a file instead of -"});
    if (n == 0) return text;
    text.append(window.data(), static_cast<size_t>(n));
    if (text.size() > kMost)
      fail(Exit::data, {.what = "stdin has too much",
                        .where = "stdin",
                        .why = fmt::format("more than {} bytes", kMost),
                        .fix = "give the name of a file instead of -"});
  }
}

std::vector<JsonLine> json_lines_of(const std::string& text, const std::string& source) {
  std::vector<JsonLine> list;
  size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", source, number);
    list.push_back({parse_data_line(line, where), where});
  }
  if (list.empty())
    fail(Exit::data, {.what = "there are no lines",
                      .where = source,
                      .why = fmt::format("{} bytes, all of them blanks", text.size()),
                      .fix = "give lines with one JSON object each"});
  return list;
}

std::vector<JsonLine> read_json_lines(const std::string& path) {
  if (path == "-") return json_lines_of(read_stdin(), "stdin");
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
