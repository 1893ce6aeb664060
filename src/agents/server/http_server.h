#pragma once
// The HTTP/1.1 server under the doors: connections, their limits, and requests as exchanges. It knows nothing
// of what is asked. One thread does the network's work; another takes connections in, closes those that are
// over a limit, and sees which clients have gone.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/agents/server/http_exchange.h"
#include "src/agents/server/shared_port.h"

namespace temper {

struct HttpOptions {
  std::string address = "127.0.0.1";  ///< of IP version 4 or 6
  int port = 0;                       ///< 0: the system chooses one
  std::string port_key = "port";      ///< what a user sets it by, for errors
  /// Instead of `port`: one of `address` that other processes have, too.
  std::shared_ptr<SharedPort> shared_port = {};
  int64_t max_body_bytes = int64_t{16} << 20;
  int64_t max_bodies_bytes = int64_t{1} << 30;   ///< of all requests that are not answered yet
  int64_t max_unsent_bytes = int64_t{64} << 20;  ///< of one answer
  int max_connections = 1024;  ///< and no more than half of the files that the process may open
  double header_seconds = 10;  ///< from a connection's start, or the first byte of its next request
  double body_seconds = 60;    ///< from the end of the header
  double idle_seconds = 75;    ///< of a connection between requests, and of a client that takes nothing
  /// The body of an answer that the server gives by itself (400, 413, 415, 417, 500, 503, 505), from its
  /// status, the reason in a sentence, and the path of the request (empty where none was sound). Called on
  /// the network's thread.
  std::function<std::string(int status, const std::string& why, const std::string& path)> refusal_body = {};
};

/// Asked with each request's head before the body is read: nothing lets it go on, a refusal is sent and
/// nothing of the body is kept. Sets `known` where the key holds, or where none is asked for: such a
/// connection keeps its place while others want one, and any other may lose it at any time. Runs on the
/// network's thread, returns at once and does not throw.
using HttpAllow = std::function<std::optional<HttpRefusal>(const HttpHead&, bool& known)>;
/// Gets each whole request that was allowed, on the network's thread: returns at once and does not throw.
using HttpReceive = std::function<void(std::shared_ptr<HttpExchange>)>;

class HttpServer {
 public:
  /// Binds and listens. Exit::usage where `address` is no IP address, Exit::environment where the port is in
  /// use or not to be had, with both named.
  HttpServer(const HttpOptions& options, HttpAllow allow, HttpReceive receive);
  /// Closes all connections; exchanges that wait are gone. No thread and no descriptor stays.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:8080"; for an address that stands for all of the host's, the loopback one.
  std::string url() const;
  /// Connections that are open.
  int connections() const;
  /// Takes no new connections; what is there goes on. A shared port is closed for all.
  void close();
  /// It takes none any longer: it was told so, or another process has closed a shared port.
  bool closed() const;

 private:
  class Network;
  std::unique_ptr<Network> network_;
};

}  // namespace temper
