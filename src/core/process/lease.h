#pragma once
// Who owns a folder, where the file system has no locks (Lustre without flock, some NFS): a file with the
// owner's host and pid that the owner renews. Nobody is asked for the time of another machine.

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace temper {

class Lease {
 public:
  struct Seconds {
    double renewal = 2;  // between two renewals
    double stale = 60;   // without one, as whoever wants it counts: it is free
  };

  /// Takes the lease; the folder is there. One that stands there is free when its owner was a process of this
  /// machine that has ended, or when it is not renewed for so long, which is waited for. Exit::busy with the
  /// owner's host and pid when it is renewed; Exit::storage when the file cannot be written.
  explicit Lease(const std::string& path, Seconds seconds);
  explicit Lease(const std::string& path) : Lease(path, Seconds{}) {}
  /// Gives it back, if it is still held.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// False once another process has taken it: this one was stopped for too long.
  bool held() const;

 private:
  bool create();
  void wait_until_free(const std::string& found);
  void take_away(const std::string& found) const;
  void renew();

  const std::string path_, word_;
  const Seconds seconds_;
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;  // under the mutex
  std::thread thread_;
};

}  // namespace temper
