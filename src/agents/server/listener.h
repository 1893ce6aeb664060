#pragma once
// The socket that connections come in by.

#include <string>

namespace temper {

class Listener {
 public:
  /// Exit::usage where `address` is no IP address or `port` no port, Exit::environment where the system does
  /// not let it have them.
  Listener(const std::string& address, int port);
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int descriptor() const { return descriptor_; }
  int port() const { return port_; }
  const std::string& url() const { return url_; }
  /// A new connection that does not block; -1, and errno, where there is none.
  int accept() const;
  void close();

 private:
  int descriptor_ = -1;
  int port_ = 0;
  std::string url_;
};

}  // namespace temper
