#include "src/agents/server/network.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <utility>

#include "src/agents/server/answers.h"
#include "src/core/check.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookEvery{100};
constexpr std::chrono::milliseconds kLeaveWait{2};
/// Connections that have lost their place and are not closed yet: more of them, and nobody comes in.
constexpr int kMostLeaving = 64;
/// What a connection has for its head and for pieces of body. Over 32 KiB the library maps it, so that an
/// ended connection gives it back to the system, and one that sent little has little.
constexpr size_t kConnectionBytes = size_t{64} << 10;

/// No more places than half of the descriptors that the process may have.
int places(int wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(static_cast<rlim_t>(std::max(wanted, 1)), limit.rlim_cur / 2));
}

std::string plain_refusal(int, const std::string& why, const std::string&) {
  return fmt::format(R"({{"error": {{"message": "{}"}}}})", why);
}

HttpOptions completed(HttpOptions options) {
  if (!options.refusal_body) options.refusal_body = plain_refusal;
  options.max_connections = places(options.max_connections);
  return options;
}

Listener listener_of(const HttpOptions& options) {
  return options.shared_port ? Listener(options.address, *options.shared_port)
                             : Listener(options.address, options.port, options.port_key);
}

/// The library's own way would decode the path in place.
size_t left_as_it_is(void*, MHD_Connection*, char* text) { return std::strlen(text); }

Connection* place_of(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return static_cast<Connection*>(info->socket_context);
}

}  // namespace

HttpServer::Network::Network(const HttpOptions& options, HttpAllow allow, HttpReceive receive)
    : options_(completed(options)),
      allow_(std::move(allow)),
      receive_(std::move(receive)),
      listener_(listener_of(options_)),
      connections_({.places = options_.max_connections,
                    .header_seconds = options_.header_seconds,
                    .body_seconds = options_.body_seconds,
                    .idle_seconds = options_.idle_seconds}),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      daemon_(start_library()) {
  if (wake_ < 0 || daemon_ == nullptr) {
    if (wake_ >= 0) ::close(wake_);
    fail(Exit::environment, {.what = "the server's thread does not start",
                             .where = listener_.url(),
                             .why = std::strerror(errno),
                             .fix = "see the limits of threads and open files (ulimit -u, ulimit -n)"});
  }
  gate_ = quiet_thread([this] { keep_gate(); });
}

HttpServer::Network::~Network() {
  ending_ = true;
  wake_gate();
  gate_.join();
  listener_.close();
  connections_.end_calls();  // the library aborts where a connection still sleeps
  daemon_.reset();
  ::close(wake_);
}

MHD_Daemon* HttpServer::Network::start_library() {
  constexpr unsigned kFlags =
      MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET;
  MHD_Daemon* daemon = nullptr;
  const auto silence = static_cast<unsigned>(std::ceil(std::max(options_.idle_seconds, 1.0)));
  const MHD_AccessHandlerCallback comes = [](void* self, MHD_Connection* connection, const char*,
                                             const char* method, const char* version, const char* body,
                                             size_t* body_size, void** request) {
    return static_cast<Network*>(self)->request_comes(connection, {method, version, body, body_size},
                                                      *request);
  };
  // Its thread has the signals of the one that starts it.
  quiet_thread([&] {
    daemon = MHD_start_daemon(
        kFlags, 0, nullptr, nullptr, comes, this, MHD_OPTION_URI_LOG_CALLBACK, &request_begins, this,
        MHD_OPTION_NOTIFY_COMPLETED, &request_ends, this, MHD_OPTION_NOTIFY_CONNECTION, &connection_changes,
        this, MHD_OPTION_UNESCAPE_CALLBACK, &left_as_it_is, nullptr, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        kConnectionBytes, MHD_OPTION_CONNECTION_LIMIT,
        static_cast<unsigned>(options_.max_connections + 2 * kMostLeaving), MHD_OPTION_CONNECTION_TIMEOUT,
        silence, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
  }).join();
  return daemon;
}

void* HttpServer::Network::request_begins(void* self, const char* target, MHD_Connection* connection) {
  auto& network = *static_cast<Network*>(self);
  if (Connection* const place = place_of(connection)) network.connections_.reading_header(place);
  return std::make_unique<Incoming>(network.options_,
                                    BodyRoom(network.bodies_, network.options_.max_bodies_bytes),
                                    target == nullptr ? "" : target)
      .release();  // request_ends() gets it
}

MHD_Result HttpServer::Network::request_comes(MHD_Connection* connection, const Piece& piece, void* request) {
  auto* const incoming = static_cast<Incoming*>(request);
  if (incoming == nullptr || place_of(connection) == nullptr) return MHD_NO;
  if (!incoming->headed()) return take_head(*incoming, connection, piece);
  if (*piece.body_size == 0) return answer(*incoming, connection);
  const bool go_on = incoming->take_body(piece.body, *piece.body_size);
  *piece.body_size = 0;
  return go_on ? MHD_YES : MHD_NO;
}

MHD_Result HttpServer::Network::take_head(Incoming& request, MHD_Connection* connection, const Piece& piece) {
  const std::vector<HeaderLine> lines = header_lines(connection);
  const bool known =
      request.take_head(check_head(piece.method, request.target(), piece.version, lines), allow_);
  connections_.reading_body(place_of(connection), known);
  return request.refused_at_once() ? send_refusal(connection, *request.refusal(), true) : MHD_YES;
}

MHD_Result HttpServer::Network::answer(Incoming& request, MHD_Connection* connection) {
  if (request.refusal()) return send_refusal(connection, *request.refusal(), false);
  if (request.call() == nullptr) {
    const std::shared_ptr<HttpCall>& call = request.make_call();
    call->set_socket(place_of(connection)->descriptor);
    if (!connections_.answering(place_of(connection), call)) return MHD_NO;
    receive_(std::make_shared<HttpExchange>(call));
  }
  HttpCall& call = *request.call();
  switch (call.next(connection)) {
    case HttpCall::Next::wait:
      return MHD_YES;
    case HttpCall::Next::whole:
      return send_whole(connection, call);
    case HttpCall::Next::stream:
      return send_stream(connection, call);
    case HttpCall::Next::dropped:
      return send_refusal(connection, request.refusal(500, "the server did not answer"), false);
    case HttpCall::Next::close:
      break;
  }
  return MHD_NO;
}

void HttpServer::Network::request_ends(void* self, MHD_Connection* connection, void** request,
                                       MHD_RequestTerminationCode how) {
  const std::unique_ptr<Incoming> incoming(static_cast<Incoming*>(std::exchange(*request, nullptr)));
  if (incoming != nullptr && incoming->call() != nullptr)
    incoming->call()->finished(how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
  if (Connection* const place = place_of(connection)) static_cast<Network*>(self)->connections_.idle(place);
}

void HttpServer::Network::connection_changes(void* self, MHD_Connection* connection, void** place,
                                             MHD_ConnectionNotificationCode what) {
  Connections& connections = static_cast<Network*>(self)->connections_;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    const int descriptor = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    *place = connections.started(descriptor);
  } else if (*place != nullptr) {
    connections.closed(static_cast<Connection*>(std::exchange(*place, nullptr)));
  }
}

void HttpServer::Network::close() {
  closing_ = true;
  wake_gate();
  closed_.wait(false);
}

void HttpServer::Network::wake_gate() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void HttpServer::Network::close_gate() {
  listener_.close();
  closed_ = true;
  closed_.notify_all();
}

/// Among the processes that share the port, where others do.
bool HttpServer::Network::takes_next() {
  if (!options_.shared_port) return true;
  options_.shared_port->note_open(connections_.count());
  return options_.shared_port->is_my_turn();
}

void HttpServer::Network::keep_gate() {
  auto next_look = Clock::now() + kLookEvery;
  while (!ending_) {
    if (closing_ && !closed_) {
      listener_.end();
      close_gate();
    }
    const bool crowded = connections_.leaving() >= kMostLeaving;
    const bool listening = !closed_ && !crowded && !short_of_descriptors_;
    if (options_.shared_port) options_.shared_port->note_open(listening ? connections_.count() : INT_MAX);
    pollfd sleep[2] = {{.fd = wake_, .events = POLLIN, .revents = 0},
                       {.fd = listening ? listener_.descriptor() : -1, .events = POLLIN, .revents = 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_look - Clock::now());
    const auto limit = std::clamp(crowded ? kLeaveWait : left, std::chrono::milliseconds{0}, kLookEvery);
    ::poll(sleep, 2, static_cast<int>(limit.count()));
    uint64_t woken = 0;
    if (sleep[0].revents != 0 && ::read(wake_, &woken, sizeof woken) < 0) continue;
    if ((sleep[1].revents & POLLHUP) != 0) {  // by another process
      close_gate();
    } else if (sleep[1].revents != 0 && !take_in()) {
      ::poll(sleep, 1, static_cast<int>(kLeaveWait.count()));
    }
    if (Clock::now() < next_look) continue;
    connections_.look();
    short_of_descriptors_ = false;
    next_look = Clock::now() + kLookEvery;
  }
  closed_ = true;
  closed_.notify_all();
}

/// False: the next connection is for another process.
bool HttpServer::Network::take_in() {
  for (int i = 0; i < kMostLeaving && connections_.leaving() < kMostLeaving; ++i) {
    if (!takes_next()) return false;
    const int descriptor = listener_.accept();
    if (descriptor < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        for (int j = 0; j < kMostLeaving; ++j) connections_.make_room();
        short_of_descriptors_ = true;
      }
      return true;
    }
    if (!connections_.admit(descriptor)) {
      ::close(descriptor);
      continue;
    }
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size);
    // Closes the descriptor where it cannot.
    if (MHD_add_connection(daemon_.get(), descriptor, reinterpret_cast<sockaddr*>(&peer), size) != MHD_YES)
      connections_.forget(descriptor);
  }
  return true;
}

}  // namespace temper
