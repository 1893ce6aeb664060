#include "src/core/process/lease.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/process/host.h"
#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {
namespace {

constexpr int64_t kMostBytes = 4096;

[[noreturn]] void fail_lease(const std::string& path, const char* what) {
  fail(Exit::storage, {.what = what,
                       .where = path,
                       .why = std::strerror(errno),
                       .fix = "check the space on this file system, or set run.dir to another folder"});
}

/// What tells processes of this machine from those of others, and of containers on it.
std::string this_machine() {
  char processes[64] = "";
  [[maybe_unused]] const ssize_t length = ::readlink("/proc/self/ns/pid", processes, sizeof processes - 1);
  std::string boot(36, '-');
  if (const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC); file >= 0) {
    [[maybe_unused]] const ssize_t got = ::read(file, boot.data(), boot.size());
    ::close(file);
  }
  return this_host() + " " + boot + " " + processes;
}

std::string random_word() {
  std::random_device draw;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", draw(), draw(), draw(), draw());
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The whole of it; empty: there is none, or it is being written.
std::string read_lease(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return "";
  std::string text(kMostBytes, '\0');
  const ssize_t got = ::read(file, text.data(), text.size());
  ::close(file);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

/// "host A, pid 5\nmachine M\n..." of a process of this machine that is no more.
bool owner_has_died(const std::string& lease) {
  if (lease.find("\nmachine " + this_machine() + "\n") == std::string::npos) return false;
  const size_t at = first_line(lease).rfind(", pid ");
  const int pid = at == std::string::npos ? 0 : std::atoi(lease.c_str() + at + 6);
  return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

Lease::Lease(const std::string& path, Seconds seconds)
    : path_(path), word_(random_word()), seconds_(seconds) {
  while (!create())
    if (const std::string found = read_lease(path_); !owner_has_died(found))
      wait_until_free(found);
    else
      take_away(found);
  thread_ = quiet_thread([this] { renew(); });
}

Lease::~Lease() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
  if (held()) ::unlink(path_.c_str());
  ::close(file_);
}

bool Lease::held() const {
  struct stat mine {
  }, found{};
  return ::fstat(file_, &mine) == 0 && ::stat(path_.c_str(), &found) == 0 && mine.st_dev == found.st_dev &&
         mine.st_ino == found.st_ino && read_lease(path_).find("word " + word_) != std::string::npos;
}

/// False: there is one.
bool Lease::create() {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0 && errno == EEXIST) return false;
  if (file_ < 0) fail_lease(path_, "cannot write the run folder's lease");
  const std::string text =
      fmt::format("host {}, pid {}\nmachine {}\nword {}\n", this_host(), ::getpid(), this_machine(), word_);
  if (::pwrite(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file_) == 0)
    return true;
  const int error = errno;
  ::unlink(path_.c_str());
  ::close(file_);
  errno = error;
  fail_lease(path_, "cannot write the run folder's lease");
}

/// Comes back when it was taken away or given back.
void Lease::wait_until_free(const std::string& found) {
  for (const Stopwatch waited; waited.seconds() < seconds_.stale;) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_.renewal / 4));
    note_progress();  // it has a limit of its own
    if (!path_exists(path_)) return;
    const std::string now = read_lease(path_);
    if (now != found && !now.empty() && !found.empty())
      fail(Exit::busy, {.what = "the run folder is in use",
                        .where = path_,
                        .why = "its owner is " + first_line(now) + ", which renews its lease",
                        .fix = "wait for it, stop it, or choose another run.name"});
    if (now != found || owner_has_died(found)) return;  // it was just begun, or may be taken: from the start
  }
  take_away(found);
}

/// One of several that find it free takes it away; who took away another one than it found puts it back.
void Lease::take_away(const std::string& found) const {
  const std::string aside = fmt::format("{}.tmp.{}-{}", path_, ::getpid(), std::random_device()());
  if (::rename(path_.c_str(), aside.c_str()) != 0) {
    if (errno != ENOENT) fail_lease(path_, "cannot take over the run folder's lease");
    return;
  }
  if (read_lease(aside) != found && ::link(aside.c_str(), path_.c_str()) != 0)
    fail_lease(path_, "cannot put the run folder's lease back");
  ::unlink(aside.c_str());
}

/// In the file that this process made: where another has taken its place, that one is not touched.
void Lease::renew() {
  struct stat made {};
  ::fstat(file_, &made);
  std::unique_lock lock(mutex_);
  for (int64_t count = 1;
       !ends_.wait_for(lock, std::chrono::duration<double>(seconds_.renewal), [this] { return ended_; });
       ++count) {
    const std::string text = fmt::format("renewed {:>16}\n", count);
    if (::pwrite(file_, text.data(), text.size(), made.st_size) > 0) ::fsync(file_);
  }
}

}  // namespace temper
