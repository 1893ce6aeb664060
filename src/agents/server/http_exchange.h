#pragma once
// One HTTP request and its answer, as the doors see them.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

class HttpCall;

/// The headers of a request that doors may read; no other one is kept.
inline constexpr std::array<std::string_view, 9> kHttpHeaders{
    "accept",       "anthropic-beta",          "anthropic-version",        "content-type", "idempotency-key",
    "x-session-id", "x-stainless-retry-count", "x-stainless-read-timeout", "x-request-id"};

/// What is known of a request before its body: all of it came from outside. Nothing of it is ever logged.
struct HttpHead {
  std::string method;
  std::string path;  ///< as it was sent, without "?" and what follows; printable ASCII, nothing decoded
  std::string key;   ///< of "Authorization: Bearer KEY", else of "x-api-key: KEY"; empty: none
  /// By lower-case name, only those of `kHttpHeaders` that were sent. Of a repeated one, the first.
  std::map<std::string, std::string> headers;
  /// -1: it comes in chunks. 0: there is no body.
  int64_t content_length = 0;
};

struct HttpRequest : HttpHead {
  std::string body;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// An answer that says no.
struct HttpRefusal {
  int status = 400;
  std::string body;
  HttpHeaders headers = {};
  std::string content_type = "application/json";
};

/// The handle of one request, shared by the network's thread and whoever answers. Every method may be called
/// from any thread, returns at once and does nothing more once the client has gone or the server has ended;
/// a handle may outlive its server. Either reply(), once, or begin(), send() as often as there is something,
/// end(). When the last handle goes away without an answer, the client gets a 500; without end(), its
/// connection is closed in the middle.
class HttpExchange {
 public:
  explicit HttpExchange(std::shared_ptr<HttpCall> call);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const;

  /// The whole answer.
  void reply(int status, std::string body, const HttpHeaders& headers = {},
             const std::string& content_type = "application/json");

  /// An answer in pieces, status 200: its head goes out with begin().
  void begin(const std::string& content_type = "text/event-stream", const HttpHeaders& headers = {});
  void send(const std::string& piece);
  void end();

  /// An answer has begun or stands whole.
  bool answered() const;
  /// Nobody waits for the answer any more: the client closed its connection or its writing half (seen within
  /// 100 ms), did not take what was sent, or the server has ended.
  bool gone() const;
  /// The last byte of the answer went to the socket.
  bool delivered() const;
  /// The client will never have the answer: it left, or closed its writing half, before all of it was on its
  /// way. Known from the instant in which it does so.
  bool lost() const;
  /// Bytes of the answer that were given and that the socket has not taken yet. Over
  /// HttpOptions::max_unsent_bytes the client counts as gone.
  int64_t buffered() const;

 private:
  std::shared_ptr<HttpCall> call_;
};

}  // namespace temper
