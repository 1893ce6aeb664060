#pragma once
// The server's two threads, and what the HTTP library asks them.

#include <microhttpd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "src/agents/server/connections.h"
#include "src/agents/server/http_server.h"
#include "src/agents/server/incoming.h"
#include "src/agents/server/listener.h"

namespace temper {

/// The library's thread reads and writes (by poll: its other ways lose wake-ups of connections that sleep);
/// the gate's thread takes connections in, hands them over and looks at their clocks.
class HttpServer::Network {
 public:
  Network(const HttpOptions& options, HttpAllow allow, HttpReceive receive);
  ~Network();
  const Listener& listener() const { return listener_; }
  int connections() const { return connections_.count(); }
  void close();
  bool closed() const { return closed_; }

 private:
  // For the library; each gets this object first.
  static void* request_begins(void* self, const char* target, MHD_Connection* connection);
  struct Piece {
    const char *method, *version, *body;
    size_t* body_size;  // how much of it was not taken, too
  };
  MHD_Result request_comes(MHD_Connection* connection, const Piece& piece, void* request);
  static void request_ends(void* self, MHD_Connection* connection, void** request,
                           MHD_RequestTerminationCode how);
  static void connection_changes(void* self, MHD_Connection* connection, void** place,
                                 MHD_ConnectionNotificationCode what);

  MHD_Result take_head(Incoming& request, MHD_Connection* connection, const Piece& piece);
  MHD_Result answer(Incoming& request, MHD_Connection* connection);

  MHD_Daemon* start_library();
  void keep_gate();
  void close_gate();
  bool takes_next();
  bool take_in();
  void wake_gate() const;

  HttpOptions options_;
  const HttpAllow allow_;
  const HttpReceive receive_;
  Listener listener_;
  Connections connections_;
  const BodyRoom::Sum bodies_ = std::make_shared<std::atomic<int64_t>>(0);
  int wake_;  // an eventfd that the gate's thread sleeps on
  struct StopLibrary {
    void operator()(MHD_Daemon* daemon) const { MHD_stop_daemon(daemon); }
  };
  std::unique_ptr<MHD_Daemon, StopLibrary> daemon_;
  std::atomic<bool> closing_ = false, closed_ = false, ending_ = false;
  bool short_of_descriptors_ = false;  // of the gate's thread
  std::thread gate_;
};

}  // namespace temper
