#pragma once
// A client with nothing but a socket, so that it can say what no HTTP library would.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "src/core/stopwatch.h"

namespace temper {

struct ClientAnswer {
  int status = 0;                              // 0: the connection ended before an answer was whole
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
};

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  Client(Client&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        got_(std::move(other.got_)) {}
  ~Client() { close(); }

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void close_writing() const { ::shutdown(socket_, SHUT_WR); }

  /// False: the server has closed.
  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  /// Leaves with its request: what was written and the end of the connection go out as one piece.
  void write_and_close(std::string_view text) {
    ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL | MSG_MORE);
    close();
  }

  /// The next whole answer; without one within the seconds, status 0.
  ClientAnswer read(double seconds = 10) {
    ClientAnswer answer;
    const Stopwatch watch;
    size_t end = 0;
    while ((end = got_.find("\r\n\r\n")) == got_.npos)
      if (!more(seconds - watch.seconds())) return answer;
    const std::string head = take(end + 4);
    read_headers(head, answer);
    if (answer.headers["transfer-encoding"] == "chunked") {
      for (std::string piece; chunk(piece, seconds - watch.seconds());) {
        if (piece.empty()) return answer;
        answer.body += piece;
      }
      answer.status = 0;
      return answer;
    }
    const size_t size = std::stoul("0" + answer.headers["content-length"]);
    while (got_.size() < size)
      if (!more(seconds - watch.seconds())) return {};
    answer.body = take(size);
    return answer;
  }

  /// The head of an answer alone.
  ClientAnswer read_head(double seconds = 10) {
    ClientAnswer answer;
    size_t end = 0;
    while ((end = got_.find("\r\n\r\n")) == got_.npos)
      if (!more(seconds)) return answer;
    read_headers(take(end + 4), answer);
    return answer;
  }

  /// One chunk of an answer in pieces; empty: the last. False: the connection ended, or nothing came.
  bool chunk(std::string& piece, double seconds = 10) {
    size_t end = 0;
    while ((end = got_.find("\r\n")) == got_.npos)
      if (!more(seconds)) return false;
    const size_t size = std::stoul(got_.substr(0, end), nullptr, 16);
    while (got_.size() < end + 2 + size + 2)
      if (!more(seconds)) return false;
    piece = got_.substr(end + 2, size);
    got_.erase(0, end + 2 + size + 2);
    return true;
  }

  /// Whether the server closes within the seconds; what it sends before is thrown away.
  bool closes(double seconds) {
    for (const Stopwatch watch; watch.seconds() < seconds;)
      if (!more(seconds - watch.seconds()) && ended_) return true;
    return false;
  }

 private:
  static void read_headers(const std::string& head, ClientAnswer& answer) {
    answer.status = std::stoi(head.substr(head.find(' ') + 1, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      if (end == at) break;
      std::string name = head.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }

  std::string take(size_t size) {
    const std::string taken = got_.substr(0, size);
    got_.erase(0, size);
    return taken;
  }

  bool more(double seconds) {
    pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(std::max(seconds, 0.0) * 1000)) <= 0) return false;
    char bytes[16384];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    got_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  int socket_;
  bool connected_ = false, ended_ = false;
  std::string got_;
};

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n";
}

inline std::string post(const std::string& body, const std::string& headers = "") {
  return "POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace temper
