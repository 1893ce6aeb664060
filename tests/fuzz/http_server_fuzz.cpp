// What a client sends to the HTTP server on one connection, in up to three pieces. Whatever it is, the
// connection ends when the client has no more to say, and the next client is served.

#include "src/agents/server/http_server.h"
#include "tests/agents/server/client.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

HttpServer& server() {
  static HttpServer one(
      {.max_body_bytes = 4096, .header_seconds = 1, .body_seconds = 1, .idle_seconds = 1},
      [](const HttpHead& head, bool& known) -> std::optional<HttpRefusal> {
        known = head.key == "good";
        if (head.path != "/none") return {};
        return HttpRefusal{.status = 404, .body = "none"};
      },
      [](const std::shared_ptr<HttpExchange>& exchange) {
        const HttpRequest& request = exchange->request();
        require(std::ssize(request.body) <= 4096, "a body over its limit");
        require(request.content_length < 0 || request.content_length == std::ssize(request.body),
                "a body of another length than said");
        if (request.path == "/dropped") return;
        if (request.path != "/stream") return exchange->reply(200, request.body);
        exchange->begin();
        exchange->send(request.body);
        exchange->end();
      });
  return one;
}

}  // namespace

void fuzz(std::string_view input) {
  static int count = 0;
  Client client(server().port());
  for (const std::string_view part : parts_of(input, 3)) client.write(part);
  client.close_writing();
  require(client.closes(3), "a connection that stays");
  if (++count % 64 != 0) return;
  Client well(server().port());
  well.write(post("well", "x-api-key: good\r\n"));
  require(well.read(3).body == "well", "a client that is not served");
}

}  // namespace temper

/// The server's threads allocate and free between two inputs, which libFuzzer takes for leaks and looks for.
extern "C" int __lsan_is_turned_off() { return 1; }
