#include "src/comm/watch/watch_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <utility>

namespace temper {
namespace {

constexpr int kConnectMilliseconds = 2000;

Socket new_socket() { return Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

bool becomes_writable(const Socket& socket) {
  struct pollfd wanted {
    socket.descriptor(), POLLOUT, 0
  };
  int error = 0;
  socklen_t size = sizeof error;
  return ::poll(&wanted, 1, kConnectMilliseconds) == 1 &&
         ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket::Socket(Socket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), rest_(std::move(other.rest_)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(rest_, other.rest_);
  return *this;
}

bool Socket::send(const void* data, size_t bytes) {
  const bool begun = !rest_.empty();
  if (!begun) rest_.assign(static_cast<const char*>(data), bytes);
  const ssize_t sent = ::send(descriptor_, rest_.data(), rest_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0)
    rest_.erase(0, static_cast<size_t>(sent));
  else if (!begun)
    rest_.clear();
  return !begun && sent > 0;
}

bool Socket::receive(std::string& text) {
  constexpr int kMostBlocks = 16;  // a stranger may send without end
  char bytes[4096];
  for (int i = 0; i < kMostBlocks; ++i) {
    const ssize_t got = ::recv(descriptor_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    text.append(bytes, static_cast<size_t>(got));
  }
  return true;
}

Socket listen_anywhere() {
  constexpr int kBacklog = 4096;
  Socket socket = new_socket();
  struct sockaddr_in any {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (!socket || ::bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(socket.descriptor(), kBacklog) != 0)
    return {};
  return socket;
}

std::string address_of(const Socket& listener) {
  struct sockaddr_in bound {};
  socklen_t size = sizeof bound;
  if (!listener || ::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return "";
  std::string text = std::to_string(ntohs(bound.sin_port));
  struct ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) all = nullptr;
  for (const struct ifaddrs* at = all; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK)) continue;
    char address[INET_ADDRSTRLEN];
    const auto* in = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (::inet_ntop(AF_INET, &in->sin_addr, address, sizeof address)) text += std::string(" ") + address;
  }
  if (all) ::freeifaddrs(all);
  return text + " 127.0.0.1";
}

Socket connect_to(const std::string& addresses) {
  std::istringstream words(addresses);
  uint16_t port = 0;
  words >> port;
  for (std::string address; words >> address;) {
    struct sockaddr_in to {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    Socket socket = new_socket();
    if (!socket || ::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) continue;
    const int result = ::connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    if ((result == 0 || errno == EINPROGRESS) && becomes_writable(socket)) return socket;
  }
  return {};
}

Socket accept_one(const Socket& listener) {
  return Socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace temper
