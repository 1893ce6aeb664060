#pragma once
// A port that several processes of a host take connections from. All have one listening socket, so that none
// waits at a process that has died or stands still: whoever is awake and has the fewest connections takes the
// next one.

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace temper {

class SharedPort {
 public:
  /// How long after its last sign of life a process is left out.
  static constexpr double kAwakeSeconds = 2;

  /// The first of `processes`: binds and listens, throws as Listener does, and Exit::environment where the
  /// system has no memory to share.
  SharedPort(const std::string& address, int port, const std::string& port_key, int processes);
  /// Process `index`, with what descriptors() of the first one gives, which it owns from here on.
  SharedPort(std::span<const int> descriptors, int index, int processes);
  ~SharedPort();
  SharedPort(const SharedPort&) = delete;
  SharedPort& operator=(const SharedPort&) = delete;

  /// Those of the socket and of the memory; another process gets copies of them.
  static constexpr size_t kDescriptors = 2;
  std::span<const int, kDescriptors> descriptors() const { return descriptors_; }
  /// A descriptor of the socket that the caller closes.
  int make_descriptor() const;

  /// This process works.
  void note_alive();
  /// It has so many connections; more than it can have: it takes none for now.
  void note_open(int open) { mine().open = open; }
  /// Whether it is to take the next connection.
  bool is_my_turn() const;

 private:
  struct Place {
    std::atomic<int64_t> alive;  // milliseconds of the host's clock; 0: not yet
    std::atomic<int32_t> open;
  };
  static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);
  void map();
  Place& mine() const { return places_[static_cast<size_t>(index_)]; }

  int descriptors_[kDescriptors] = {-1, -1};
  const int index_;
  std::span<Place> places_;
};

}  // namespace temper
