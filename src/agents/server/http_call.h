#pragma once
// One request and its answer between the network's thread and whoever answers.

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "src/agents/server/body_room.h"
#include "src/agents/server/http_exchange.h"

struct MHD_Connection;

namespace temper {

/// A request whose connection sleeps (is suspended) while there is nothing to send, and is woken from any
/// thread. A connection lives at least as long as it sleeps, and it sleeps only before finished().
class HttpCall {
 public:
  HttpCall(HttpRequest request, BodyRoom room, int64_t max_unsent_bytes)
      : request_(std::move(request)), room_(std::move(room)), max_unsent_bytes_(max_unsent_bytes) {}

  const HttpRequest& request() const { return request_; }

  // Whoever answers; any thread.
  void reply(int status, std::string body, const HttpHeaders& headers, const std::string& content_type);
  void begin(const std::string& content_type, const HttpHeaders& headers);
  void send(const std::string& piece);
  void end();
  /// Nobody is left who could answer.
  void drop();
  bool answered() const;
  bool gone() const;
  bool delivered() const;
  bool lost() const;
  int64_t buffered() const;

  // The network.
  /// The socket of its connection, which is open until finished().
  void set_socket(int socket);
  enum class Next { wait, whole, stream, dropped, close };
  /// What to do with the connection. After `wait` it sleeps until it is asked for again.
  Next next(MHD_Connection* connection);
  // They belong to an answer that next() has told of, and change no more.
  int status() const { return status_; }
  const std::string& content_type() const { return content_type_; }
  const HttpHeaders& headers() const { return headers_; }
  const std::string& body() const { return unsent_; }
  /// At most `size` bytes of a stream that are next; 0: the connection sleeps. Otherwise as the library's
  /// content readers return it.
  ssize_t read(MHD_Connection* connection, char* to, size_t size);
  /// The connection is done with it.
  void finished(bool delivered);
  /// The client has gone, or the server ends. Any thread.
  void cancel();

 private:
  enum class State { waiting, whole, streaming, ended, dropped };
  void start(State state, int status, const HttpHeaders& headers, const std::string& content_type);
  void sleep(MHD_Connection* connection);
  void wake();
  void give_up();
  bool on_its_way() const;
  bool has_left() const;

  const HttpRequest request_;
  const BodyRoom room_;
  const int64_t max_unsent_bytes_;
  mutable std::mutex mutex_;
  State state_ = State::waiting;
  int status_ = 0;
  std::string content_type_;
  HttpHeaders headers_;
  std::string unsent_;  // a whole body, or of a stream what was not taken yet, behind `taken_` bytes
  size_t taken_ = 0;
  bool gone_ = false, finished_ = false, delivered_ = false;
  bool handed_on_ = false;  // a whole answer: the library has it
  int socket_ = -1;
  MHD_Connection* asleep_ = nullptr;
};

}  // namespace temper
