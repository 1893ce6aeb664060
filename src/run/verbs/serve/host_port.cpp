#include "src/run/verbs/serve/host_port.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/core/check.h"
#include "src/core/process/descriptors.h"

namespace temper {
namespace {

constexpr int kWaitMilliseconds = 60'000;  // all are there when the first begins to wait
constexpr char kWord = 'p';

[[noreturn]] void out_of_reach(const std::string& why) {
  fail(Exit::environment, {.what = "the ranks of this host cannot share a port",
                           .where = "the socket by which the first hands it to the others",
                           .why = why,
                           .fix = "start them in one container, or `temper serve` once for each port"});
}

/// A Unix socket without a file, which goes with its processes.
class Meeting {
 public:
  Meeting() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    if (socket_ < 0) out_of_reach(std::strerror(errno));
  }
  explicit Meeting(int socket) : socket_(socket) {}
  ~Meeting() { ::close(socket_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Opens it to others under a name that the system chooses.
  std::string open(int others) const {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    socklen_t size = sizeof name.sun_family;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&name), size) != 0 || ::listen(socket_, others) != 0)
      out_of_reach(std::strerror(errno));
    size = sizeof name;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &size);
    return {name.sun_path, size - offsetof(sockaddr_un, sun_path)};
  }
  void enter(const std::string& called) const {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    CHECK(called.size() <= sizeof name.sun_path, "a socket's name has {} bytes", called.size());
    std::memcpy(name.sun_path, called.data(), called.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + called.size());
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&name), size) != 0) out_of_reach(std::strerror(errno));
  }
  int next() const {
    wait();
    const int other = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (other < 0) out_of_reach(std::strerror(errno));
    return other;
  }
  /// Until something has come.
  void wait() const {
    pollfd sleep{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&sleep, 1, kWaitMilliseconds) <= 0)
      out_of_reach(fmt::format("nothing came for {} s", kWaitMilliseconds / 1000));
  }
  /// The other end belongs to this user: anybody of the host may know the name.
  bool is_ours() const {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
  }
  int descriptor() const { return socket_; }

 private:
  const int socket_;
};

void hand_out(const SharedPort& port, const Meeting& meeting, int others) {
  while (others > 0) {
    const Meeting other(meeting.next());
    if (!other.is_ours()) continue;
    send_descriptors(other.descriptor(), &kWord, sizeof kWord, port.descriptors());
    --others;
  }
}

std::shared_ptr<SharedPort> take(const std::string& name, int index, int processes) {
  const Meeting first;
  first.enter(name);
  if (!first.is_ours()) out_of_reach("another user answers at the name of the socket");
  first.wait();
  char word = 0;
  int got[SharedPort::kDescriptors];
  if (receive_descriptors(first.descriptor(), &word, sizeof word, got) != sizeof word || got[0] < 0 ||
      got[1] < 0)
    out_of_reach("the first rank closed it");
  return std::make_shared<SharedPort>(got, index, processes);
}

}  // namespace

std::shared_ptr<SharedPort> port_of_host(Comm& host, const std::string& address, int port,
                                         const std::string& port_key) {
  if (host.size() == 1) return nullptr;
  constexpr const char* kWhat = "the port that the ranks of a host share";
  host.barrier(kWhat);
  if (host.rank() > 0) return take(host.broadcast("", 0, kWhat), host.rank(), host.size());
  const auto shared = std::make_shared<SharedPort>(address, port, port_key, host.size());
  const Meeting meeting;
  const std::string name = meeting.open(host.size() - 1);
  host.broadcast(name, 0, kWhat);
  hand_out(*shared, meeting, host.size() - 1);
  return shared;
}

}  // namespace temper
