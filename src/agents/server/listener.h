#pragma once
// The socket that connections come in by.

#include <string>

namespace temper {

class SharedPort;

class Listener {
 public:
  /// Exit::usage where `address` is no IP address or `port` no port, Exit::environment where the system does
  /// not let it have them. `port_key`: what a user sets the port by, for errors.
  Listener(const std::string& address, int port, const std::string& port_key);
  /// Takes over a socket that listens at `address` already.
  Listener(const std::string& address, const SharedPort& shared);
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int descriptor() const { return descriptor_; }
  int port() const { return port_; }
  const std::string& url() const { return url_; }
  /// A new connection that does not block; -1, and errno, where there is none.
  int accept() const;
  /// Another process may still have the socket.
  void close();
  /// Nobody takes connections from it any longer, whoever has the socket.
  void end() const;

 private:
  void read_name(const std::string& address);

  int descriptor_ = -1;
  int port_ = 0;
  std::string url_;
};

}  // namespace temper
