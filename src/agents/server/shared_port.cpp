#include "src/agents/server/shared_port.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "src/agents/server/listener.h"
#include "src/core/check.h"

namespace temper {
namespace {

/// All processes of a host read the same clock.
int64_t milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

[[noreturn]] void no_memory(const char* step) {
  fail(Exit::environment,
       {.what = "the port cannot be shared by the processes of this host",
        .where = fmt::format("{} of the memory in which they count their connections", step),
        .why = std::strerror(errno),
        .fix = "start `temper serve` without mpirun, or once for each port"});
}

}  // namespace

SharedPort::SharedPort(const std::string& address, int port, const std::string& port_key, int processes)
    : index_(0), places_(static_cast<Place*>(nullptr), static_cast<size_t>(processes)) {
  const Listener listener(address, port, port_key);
  descriptors_[0] = ::fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 0);
  descriptors_[1] = ::memfd_create("temper port", MFD_CLOEXEC);
  if (descriptors_[0] < 0 || descriptors_[1] < 0 ||
      ::ftruncate(descriptors_[1], static_cast<off_t>(places_.size_bytes())) != 0)
    no_memory("size");
  map();
}

SharedPort::SharedPort(std::span<const int> descriptors, int index, int processes)
    : index_(index), places_(static_cast<Place*>(nullptr), static_cast<size_t>(processes)) {
  std::copy_n(descriptors.begin(), kDescriptors, descriptors_);
  map();
}

/// Its pages begin as zeros, which a place of nobody has.
void SharedPort::map() {
  void* const memory =
      ::mmap(nullptr, places_.size_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptors_[1], 0);
  if (memory == MAP_FAILED) no_memory("pages");
  places_ = {static_cast<Place*>(memory), places_.size()};
}

SharedPort::~SharedPort() {
  ::munmap(places_.data(), places_.size_bytes());
  for (const int descriptor : descriptors_) ::close(descriptor);
}

int SharedPort::make_descriptor() const { return ::fcntl(descriptors_[0], F_DUPFD_CLOEXEC, 0); }

void SharedPort::note_alive() { mine().alive = milliseconds(); }

bool SharedPort::is_my_turn() const {
  const int64_t now = milliseconds();
  const auto awake = [&](const Place& place) {
    return now - place.alive <= static_cast<int64_t>(kAwakeSeconds * 1000);
  };
  const bool me = awake(mine());
  const int open = mine().open;
  return std::none_of(places_.begin(), places_.end(), [&](const Place& other) {
    return &other != &mine() && awake(other) && (!me || other.open < open);
  });
}

}  // namespace temper
