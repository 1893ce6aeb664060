// The head of an HTTP request: its first line, then headers. What is taken is what it says, and taken once
// more when it is written again.

#include "src/agents/server/request_head.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

std::string_view until(std::string_view& rest, std::string_view mark) {
  const std::string_view part = rest.substr(0, rest.find(mark));
  rest.remove_prefix(std::min(part.size() + mark.size(), rest.size()));
  return part;
}

CheckedHead check(std::string_view input) {
  const std::string_view method = until(input, " "), target = until(input, " "), version = until(input, "\n");
  std::vector<HeaderLine> lines;
  while (!input.empty()) {
    const std::string_view name = until(input, ": ");
    lines.push_back({name, until(input, "\n")});
  }
  return check_head(method, target, version, lines);
}

std::string written(const HttpHead& head) {
  std::string text = head.method + " " + head.path + " HTTP/1.1\nhost: h\n";
  if (head.content_length > 0) text += "content-length: " + std::to_string(head.content_length) + "\n";
  if (head.content_length < 0) text += "transfer-encoding: chunked\n";
  if (!head.key.empty()) text += "authorization: bearer " + head.key + "\n";
  for (const auto& [name, value] : head.headers) text += name + ": " + value + "\n";
  return text;
}

}  // namespace

void fuzz(std::string_view input) {
  const CheckedHead checked = check(input);
  require((checked.status == 0) == checked.fault.empty(), "a refusal without a reason");
  if (checked.status != 0) return require(checked.status >= 400, "a refusal that is none");
  const HttpHead& head = checked.head;
  require(head.path[0] == '/' && head.path.find('?') == head.path.npos, "a path that is none");
  require(head.content_length >= -1, "a length that is none");
  const CheckedHead again = check(written(head));
  require(again.status == 0, "a sound head is refused: " + again.fault);
  require(again.head.method == head.method && again.head.path == head.path && again.head.key == head.key &&
              again.head.headers == head.headers && again.head.content_length == head.content_length,
          "another head");
}

}  // namespace temper
