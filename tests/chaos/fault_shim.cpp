// Loaded before the C library (LD_PRELOAD): counts the file calls of a process below one folder and lets one
// of them go wrong. Variables:
//   TEMPER_FAULT_ROOT  the folder: calls on paths that contain it are counted, from 1 on
//   TEMPER_FAULT_FROM  counting begins with the first path that contains this
//   TEMPER_FAULT_RANK  of this rank alone (0: a process without mpirun too)
//   TEMPER_FAULT_CALL  the call that goes wrong; 0: none
//   TEMPER_FAULT       ENOSPC, EIO (it fails, nothing is done), SHORT (half is written, and it says so),
//                      KILL (the process is killed before it), TORN (after half of it was written); HANG
//                      (every fsync that is counted has no end), SLOW (each takes TEMPER_FAULT_SECONDS for
//                      each MiB that was written to its file since the last one), FINALIZE (MPI_Finalize has
//                      no end), APPEND (an empty line is added to the file before it: somebody else writes)
//   TEMPER_FAULT_LOCK  the number of the error with which every flock below the folder fails, as on a file
//                      system without locks
//   TEMPER_FAULT_LOG   a file that gets a line "NUMBER CALL [w] PATH" for each call, or only for the one that
//                      goes wrong; w: it needs space
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

enum class Meets { nothing, failure, half, torn };

const char* variable(const char* name, const char* otherwise) {
  const char* text = getenv(name);
  return text ? text : otherwise;
}

/// Read when the process begins.
struct Plan {
  const char* root = variable("TEMPER_FAULT_ROOT", "");
  const char* from = variable("TEMPER_FAULT_FROM", "");
  const char* fault = variable("TEMPER_FAULT", "");
  const char* log = variable("TEMPER_FAULT_LOG", "");
  double seconds = atof(variable("TEMPER_FAULT_SECONDS", "0"));
  long call = atol(variable("TEMPER_FAULT_CALL", "0"));
  bool mine =
      *root != 0 && atol(variable("OMPI_COMM_WORLD_RANK", "0")) == atol(variable("TEMPER_FAULT_RANK", "0"));
};
const Plan& plan() {
  static const Plan one;
  return one;
}
std::atomic<long> calls = 0;
std::atomic<bool> counting = false;
std::atomic<long> unsynced[1024];  // bytes, by descriptor

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool below_root(const char* path) {
  const size_t length = strlen(plan().root);
  for (const char* at = strstr(path, plan().root); at; at = strstr(at + 1, plan().root))
    if (at[length] == '/' || at[length] == 0) return true;
  return false;
}

void path_of(int descriptor, char (&path)[4096]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
}

/// The call's errno stays as it is.
void write_line(long number, const char* name, bool needs_space, const char* path) {
  if (*plan().log == 0) return;
  const int before = errno;
  char line[4400];
  const int length =
      snprintf(line, sizeof line, "%ld %s %s%s\n", number, name, needs_space ? "w " : "", path);
  const long file = syscall(SYS_openat, AT_FDCWD, plan().log, O_WRONLY | O_CREAT | O_APPEND, 0644);
  syscall(SYS_write, file, line, static_cast<size_t>(length));
  syscall(SYS_close, file);
  errno = before;
}

Meets meet(const char* name, const char* path, bool needs_space = false) {
  if (!plan().mine || !below_root(path)) return Meets::nothing;
  if (!counting) counting = strstr(path, plan().from) != nullptr;
  if (!counting) return Meets::nothing;
  if (strcmp(plan().fault, "HANG") == 0 && strcmp(name, "fsync") == 0)
    for (;;) ::pause();
  const long number = ++calls;
  if (plan().call == 0 || plan().call == number) write_line(number, name, needs_space, path);
  if (plan().call != number) return Meets::nothing;
  const char* fault = plan().fault;
  if (strcmp(fault, "SHORT") == 0) return Meets::half;
  if (strcmp(fault, "TORN") == 0) return Meets::torn;
  if (strcmp(fault, "KILL") == 0) {
    ::kill(::getpid(), SIGKILL);
    ::pause();
  }
  if (strcmp(fault, "APPEND") == 0) {
    const long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND);
    syscall(SYS_write, file, "\n", 1);
    syscall(SYS_close, file);
    return Meets::nothing;
  }
  errno = strcmp(fault, "ENOSPC") == 0 ? ENOSPC : EIO;
  return Meets::failure;
}

Meets meet(const char* name, int descriptor, bool needs_space = false) {
  if (!plan().mine) return Meets::nothing;
  char path[4096];
  path_of(descriptor, path);
  return meet(name, path, needs_space);
}

std::atomic<long>& unsynced_of(int descriptor) { return unsynced[descriptor & 1023]; }

ssize_t note_written(int descriptor, ssize_t bytes) {
  if (bytes > 0) unsynced_of(descriptor) += bytes;
  return bytes;
}

void take_as_long_as_a_slow_disk(int descriptor) {
  const double bytes = static_cast<double>(unsynced_of(descriptor).exchange(0));
  char path[4096];
  path_of(descriptor, path);
  if (plan().mine && counting && below_root(path) && strcmp(plan().fault, "SLOW") == 0)
    ::usleep(static_cast<useconds_t>(1e6 * plan().seconds * bytes / (1 << 20)));
}

/// A path that is relative to an open folder.
Meets meet_at(const char* name, int folder, const char* path, bool needs_space = false) {
  if (!plan().mine || folder == AT_FDCWD || *path == '/') return meet(name, path, needs_space);
  char parent[4096], whole[8300];
  path_of(folder, parent);
  snprintf(whole, sizeof whole, "%s/%s", parent, path);
  return meet(name, whole, needs_space);
}

/// `some` writes so many of the bytes.
template <class Write>
ssize_t write_or_fail(Meets meets, size_t bytes, Write some) {
  if (meets == Meets::failure) return -1;
  if (meets == Meets::nothing || bytes < 2) return some(bytes);
  const ssize_t done = some(bytes / 2);
  if (meets == Meets::torn) {
    ::kill(::getpid(), SIGKILL);
    ::pause();
  }
  return done;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (meet("open", path, flags & O_CREAT) == Meets::failure) return -1;
  return real<int(const char*, int, ...)>("open")(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (meet_at("openat", folder, path, flags & O_CREAT) == Meets::failure) return -1;
  return real<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode);
}
int close(int descriptor) {
  const bool fails = meet("close", descriptor) == Meets::failure;
  unsynced_of(descriptor) = 0;
  const int result = real<int(int)>("close")(descriptor);
  if (fails) errno = EIO;
  return fails ? -1 : result;
}
ssize_t write(int descriptor, const void* from, size_t bytes) {
  return write_or_fail(meet("write", descriptor, true), bytes, [&](size_t n) {
    return note_written(descriptor, real<ssize_t(int, const void*, size_t)>("write")(descriptor, from, n));
  });
}
ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t at) {
  return write_or_fail(meet("pwrite", descriptor, true), bytes, [&](size_t n) {
    return note_written(descriptor,
                        real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(descriptor, from, n, at));
  });
}
ssize_t read(int descriptor, void* to, size_t bytes) {
  if (meet("read", descriptor) == Meets::failure) return -1;
  return real<ssize_t(int, void*, size_t)>("read")(descriptor, to, bytes);
}
ssize_t pread(int descriptor, void* to, size_t bytes, off_t at) {
  if (meet("pread", descriptor) == Meets::failure) return -1;
  return real<ssize_t(int, void*, size_t, off_t)>("pread")(descriptor, to, bytes, at);
}
int fsync(int descriptor) {
  if (meet("fsync", descriptor, true) == Meets::failure) return -1;
  take_as_long_as_a_slow_disk(descriptor);
  return real<int(int)>("fsync")(descriptor);
}
int flock(int descriptor, int operation) noexcept {
  static const int error = atoi(variable("TEMPER_FAULT_LOCK", "0"));
  char path[4096];
  path_of(descriptor, path);
  if (error == 0 || *plan().root == 0 || !below_root(path))
    return real<int(int, int)>("flock")(descriptor, operation);
  errno = error;
  return -1;
}
int ftruncate(int descriptor, off_t size) noexcept {
  if (meet("ftruncate", descriptor, true) == Meets::failure) return -1;
  return real<int(int, off_t)>("ftruncate")(descriptor, size);
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (meet("mkdir", path, true) == Meets::failure) return -1;
  return real<int(const char*, mode_t)>("mkdir")(path, mode);
}
int rename(const char* from, const char* to) noexcept {
  if (meet("rename", to, true) == Meets::failure) return -1;
  return real<int(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) noexcept {
  if (meet("unlink", path) == Meets::failure) return -1;
  return real<int(const char*)>("unlink")(path);
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  if (meet_at("unlinkat", folder, path) == Meets::failure) return -1;
  return real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}
int stat(const char* path, struct stat* to) noexcept {
  if (meet("stat", path) == Meets::failure) return -1;
  return real<int(const char*, struct stat*)>("stat")(path, to);
}
int lstat(const char* path, struct stat* to) noexcept {
  if (meet("lstat", path) == Meets::failure) return -1;
  return real<int(const char*, struct stat*)>("lstat")(path, to);
}
int fstat(int descriptor, struct stat* to) noexcept {
  if (meet("fstat", descriptor) == Meets::failure) return -1;
  return real<int(int, struct stat*)>("fstat")(descriptor, to);
}
int MPI_Finalize() {
  if (plan().mine && strcmp(plan().fault, "FINALIZE") == 0)
    for (;;) ::pause();
  return real<int()>("MPI_Finalize")();
}
struct dirent* readdir(DIR* folder) {
  if (meet("readdir", ::dirfd(folder)) == Meets::failure) return nullptr;
  return real<struct dirent*(DIR*)>("readdir")(folder);
}

}  // extern "C"
