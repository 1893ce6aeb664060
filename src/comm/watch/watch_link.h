#pragma once
// The sockets of the watch (comm/watch/watch.h): a place to listen at, a line to it, and messages of one size.

#include <cstddef>
#include <string>

namespace temper {

/// An open socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  /// Sends what fits; the rest of a message that was begun goes first, and a message that finds no room is
  /// left out: false. Never waits.
  bool send(const void* data, size_t bytes);
  /// Appends what has come to `text`, at most 64 KiB. False: the other side is gone.
  bool receive(std::string& text);

 private:
  int descriptor_ = -1;
  std::string rest_;
};

/// Listens at a free port of all addresses; empty where that is not possible.
Socket listen_anywhere();
/// "port address address ...": where others find it, this host's own address last.
std::string address_of(const Socket& listener);
/// A line to one of these addresses, tried in turn; empty where none answers within seconds.
Socket connect_to(const std::string& addresses);
/// The next that wants a line; empty: nobody.
Socket accept_one(const Socket& listener);

}  // namespace temper
