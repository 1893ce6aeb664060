#include "src/agents/server/connections.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

namespace temper {
namespace {

/// Bytes that the peer has sent on a connection so far; 0 where the system does not say.
uint64_t received_bytes(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace

bool Connections::admit(int descriptor) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  if (static_cast<int>(open_.size()) - leaving_ >= limits_.places && !make_room_locked()) return false;
  open_[descriptor] = std::make_unique<Connection>(descriptor);
  return true;
}

void Connections::forget(int descriptor) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(descriptor);
  if (found == open_.end()) return;
  leaving_ -= found->second->closing;
  open_.erase(found);
}

void Connections::make_room() {
  const std::lock_guard lock(mutex_);
  make_room_locked();
}

bool Connections::make_room_locked() {
  Connection* unknown = nullptr;
  Connection* idle = nullptr;
  for (auto& [_, connection] : open_) {
    Connection& it = *connection;
    if (it.closing) continue;
    if (!it.known && (unknown == nullptr || it.opened < unknown->opened)) unknown = &it;
    if (it.known && it.at == Connection::At::idle && (idle == nullptr || it.since < idle->since)) idle = &it;
  }
  Connection* const chosen = unknown != nullptr ? unknown : idle;
  if (chosen == nullptr) return false;
  chosen->closing = true;
  ++leaving_;
  if (chosen->call != nullptr) chosen->call->cancel();
  close(*chosen);
  return true;
}

int Connections::leaving() const {
  const std::lock_guard lock(mutex_);
  return leaving_;
}

int Connections::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(open_.size());
}

Connection* Connections::started(int descriptor) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(descriptor);
  if (found == open_.end()) return nullptr;
  found->second->served = true;
  if (found->second->closing) close(*found->second);
  return found->second.get();
}

void Connections::closed(Connection* connection) { forget(connection->descriptor); }

void Connections::reading_header(Connection* connection) {
  const std::lock_guard lock(mutex_);
  // A first request has its time since the connection is there.
  if (connection->at == Connection::At::idle) connection->since = Clock::now();
  connection->at = Connection::At::header;
}

void Connections::reading_body(Connection* connection, bool known) {
  const std::lock_guard lock(mutex_);
  connection->known |= known;
  connection->at = Connection::At::body;
  connection->since = Clock::now();
}

bool Connections::answering(Connection* connection, std::shared_ptr<HttpCall> call) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  connection->at = Connection::At::answer;
  connection->since = Clock::now();
  connection->call = std::move(call);
  return true;
}

void Connections::idle(Connection* connection) {
  const uint64_t received = received_bytes(connection->descriptor);
  const std::lock_guard lock(mutex_);
  connection->at = Connection::At::idle;
  connection->since = Clock::now();
  connection->received = received;
  connection->call.reset();
}

bool Connections::over_its_time(Connection& connection, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - connection.since).count();
  switch (connection.at) {
    case Connection::At::header:
      return seconds > limits_.header_seconds;
    case Connection::At::body:
      return seconds > limits_.body_seconds;
    case Connection::At::answer:
      return false;
    case Connection::At::idle:
      break;
  }
  if (received_bytes(connection.descriptor) != connection.received) {
    connection.at = Connection::At::header;
    connection.since = now;
  }
  return seconds > limits_.idle_seconds;
}

void Connections::look() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto& [_, connection] : open_)
    if (connection->served && !connection->closing && over_its_time(*connection, now)) {
      connection->closing = true;
      ++leaving_;
      close(*connection);
    }
  look_for_gone_clients();
}

/// The library does not look at connections that sleep, and not for ends of streams that it cannot write to.
void Connections::look_for_gone_clients() {
  std::vector<pollfd> sockets;
  std::vector<Connection*> answered;
  for (auto& [_, connection] : open_) {
    if (!connection->served || connection->at != Connection::At::answer) continue;
    sockets.push_back({.fd = connection->descriptor, .events = POLLRDHUP, .revents = 0});
    answered.push_back(connection.get());
  }
  if (sockets.empty() || ::poll(sockets.data(), sockets.size(), 0) < 0) return;
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (sockets[i].revents == 0 && !answered[i]->call->gone()) continue;
    answered[i]->call->cancel();
    close(*answered[i]);
  }
}

void Connections::end_calls() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (auto& [_, connection] : open_)
    if (connection->call != nullptr) connection->call->cancel();
}

/// The library sees the end of the connection and closes the descriptor.
void Connections::close(Connection& connection) {
  if (connection.served) ::shutdown(connection.descriptor, SHUT_RDWR);
}

}  // namespace temper
