#pragma once
// The connections that are open: who has a place, how long each may take for what it is at, whose client is
// gone.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "src/agents/server/http_call.h"

namespace temper {

struct ConnectionLimits {
  int places;
  double header_seconds, body_seconds, idle_seconds;
};

/// One connection, from accept() to close(). Only Connections reads and writes it.
struct Connection {
  using Clock = std::chrono::steady_clock;
  enum class At { header, body, answer, idle };

  explicit Connection(int socket) : descriptor(socket) {}

  const int descriptor;
  const Clock::time_point opened = Clock::now();
  Clock::time_point since = opened;  // at what it is at
  At at = At::header;
  bool served =
      false;  // the library has it: until it says that it closes, the descriptor is this connection's
  bool known = false;     // showed a key that holds
  bool closing = false;   // has lost its place
  uint64_t received = 0;  // bytes that had come when it fell idle
  std::shared_ptr<HttpCall> call;
};

/// Thread-safe. A connection that comes while all places are taken gets that of the oldest one that has shown
/// no key, whatever it is at, else that of the known one that is idle for longest; else it gets none.
class Connections {
 public:
  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}

  /// Makes a place for a new connection; false: there is none.
  bool admit(int descriptor);
  /// It was refused after all.
  void forget(int descriptor);
  /// Takes a place from one connection, as for a new one.
  void make_room();
  /// Connections that have lost their place and are not closed yet.
  int leaving() const;
  int count() const;

  // What the library's thread tells. A connection stays valid from started() to closed().
  Connection* started(int descriptor);
  void closed(Connection* connection);
  void reading_header(Connection* connection);
  void reading_body(Connection* connection, bool known);
  /// False: the server ends, it is not to be answered.
  bool answering(Connection* connection, std::shared_ptr<HttpCall> call);
  void idle(Connection* connection);

  /// Closes what is over its time, and tells the calls whose clients have gone.
  void look();
  /// Tells all calls that they are over; none is answered after it.
  void end_calls();

 private:
  using Clock = Connection::Clock;
  bool make_room_locked();
  bool over_its_time(Connection& connection, Clock::time_point now);
  void look_for_gone_clients();
  static void close(Connection& connection);

  const ConnectionLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<int, std::unique_ptr<Connection>> open_;  // by descriptor
  int leaving_ = 0;
  bool ended_ = false;
};

}  // namespace temper
