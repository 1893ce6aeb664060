#include "src/agents/server/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "src/agents/server/shared_port.h"
#include "src/core/check.h"

namespace temper {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kBacklog = 4096;

struct FreeAddress {
  void operator()(addrinfo* info) const { ::freeaddrinfo(info); }
};
using Address = std::unique_ptr<addrinfo, FreeAddress>;

Address parsed(const std::string& address, int port, const std::string& port_key) {
  if (port < 0 || port > kMaxPort)
    fail(Exit::usage, {.what = "the server's port is no port",
                       .where = port_key,
                       .why = fmt::format("it is {}", port),
                       .fix = fmt::format("write 0 (any that is free) or one up to {}", kMaxPort)});
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0 || address.empty())
    fail(Exit::usage, {.what = "the server's address is no IP address",
                       .where = fmt::format("address \"{}\" of the server", address),
                       .why = address.empty() ? "it is empty" : ::gai_strerror(rc),
                       .fix = "write one of this host, e.g. 127.0.0.1 (this host alone) or 0.0.0.0"});
  return Address(found);
}

[[noreturn]] void refused(const std::string& address, int port, const std::string& port_key, int error) {
  const bool taken = error == EADDRINUSE;
  fail(Exit::environment,
       {.what = "the server cannot listen",
        .where = fmt::format("{}: port {} of address {}", port_key, port, address),
        .why = taken ? "the port is in use by another program" : std::strerror(error),
        .fix = fmt::format("set {} to another port, or to 0: the system then chooses one that is free{}",
                           port_key, taken ? "" : "; the address must be one of this host")});
}

}  // namespace

Listener::Listener(const std::string& address, int port, const std::string& port_key) {
  const Address where = parsed(address, port, port_key);
  descriptor_ = ::socket(where->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (descriptor_ < 0 || ::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(descriptor_, where->ai_addr, where->ai_addrlen) != 0 || ::listen(descriptor_, kBacklog) != 0) {
    const int error = errno;
    close();
    refused(address, port, port_key, error);
  }
  read_name(address);
}

Listener::Listener(const std::string& address, const SharedPort& shared)
    : descriptor_(shared.make_descriptor()) {
  if (descriptor_ < 0)
    fail(Exit::environment, {.what = "the server cannot listen",
                             .where = "the port that the processes of this host share",
                             .why = std::strerror(errno),
                             .fix = "let the process open more files (`ulimit -n`)"});
  read_name(address);
}

void Listener::read_name(const std::string& address) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&bound), &size);
  if (bound.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(bound);
    port_ = ntohs(six.sin6_port);
    url_ = fmt::format("http://[{}]:{}", IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) ? "::1" : address, port_);
  } else {
    const auto& four = reinterpret_cast<const sockaddr_in&>(bound);
    port_ = ntohs(four.sin_port);
    url_ = fmt::format("http://{}:{}", four.sin_addr.s_addr == INADDR_ANY ? "127.0.0.1" : address, port_);
  }
}

int Listener::accept() const {
  return ::accept4(descriptor_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

void Listener::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Listener::end() const { ::shutdown(descriptor_, SHUT_RDWR); }

}  // namespace temper
