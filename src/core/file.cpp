#include "src/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/core/check.h"
#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"
#include "src/core/text/download.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

bool is_missing(int error) { return error == ENOENT || error == ENOTDIR; }

std::string io_fix(int error) {
  if (is_missing(error)) return "the folder is gone: put it back, or use one that stays";
  if (error == ENOSPC || error == EDQUOT) return "free space on this file system, or use another folder";
  if (error == EACCES || error == EPERM || error == EROFS) return "check the permissions of the path";
  return "check this file system, or use another folder";
}

[[noreturn]] void fail_io(const std::string& what, const std::string& path, int error,
                          const std::string& detail = {}) {
  std::string why = std::strerror(error);
  if (!detail.empty()) why += " (" + detail + ")";
  fail(Exit::storage, {.what = what, .where = path, .why = why, .fix = io_fix(error)});
}

/// An open never waits for the other end of a pipe; it makes no difference to a regular file.
constexpr int kNeverWait = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

/// Bytes of one call: a disk that is slow, or throttles who writes, is still seen to move.
constexpr int64_t kReadWindow = int64_t{4} << 20, kWriteWindow = int64_t{1} << 18;
/// Between syncs of a file that is being written: from what even a bad disk takes in a moment, to what costs
/// a fast one nothing.
constexpr int32_t kLeastSynced = 1 << 18, kMostSynced = 1 << 28;
constexpr double kShortSync = 0.1, kLongSync = 0.4;  // seconds

/// Size of the open file; closes it where it is none. Sockets and pipes without a reader do not even open
/// (ENXIO).
int64_t regular_size(int descriptor, const std::string& path, Exit code) {
  struct stat info {};
  const bool opened = descriptor >= 0;
  if ((opened ? ::fstat(descriptor, &info) : ::stat(path.c_str(), &info)) != 0)
    fail_io("cannot stat file", path, errno);
  if (S_ISREG(info.st_mode) && opened) return info.st_size;
  if (opened) ::close(descriptor);
  fail(code, {.what = "not a regular file",
              .where = path,
              .why = S_ISDIR(info.st_mode) ? "it is a folder" : "it is a device, pipe or socket",
              .fix = S_ISDIR(info.st_mode) ? "name a file"
                                           : "name a file; what a pipe holds can be written to one"});
}

/// A path that may not be looked into, or is too long, leads to nothing that could be used.
fs::file_status status_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const int number = error.value();
  const bool leads_nowhere =
      is_missing(number) || number == EACCES || number == ENAMETOOLONG || number == ELOOP;
  if (error && !leads_nowhere) fail_io("cannot stat", path, number);
  return status;
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

InputFile::InputFile(const std::string& path, Exit missing) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | kNeverWait);
  if (descriptor_ < 0 && is_missing(errno) && missing != Exit::storage) {
    const std::string why = std::strerror(errno), download = data_download(path);
    fail(missing, {.what = "cannot open file",
                   .where = path,
                   .why = why,
                   .fix = "check the path; it does not exist" + (download.empty() ? "" : "; " + download)});
  }
  if (descriptor_ < 0 && errno != ENXIO) fail_io("cannot open file", path, errno);
  size_ = regular_size(descriptor_, path, Exit::data);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(other.descriptor_), size_(other.size_) {
  other.descriptor_ = -1;
}

void InputFile::read(void* destination, int64_t offset, int64_t bytes) const {
  auto* out = static_cast<char*>(destination);
  int64_t done = 0;
  while (done < bytes) {
    const auto window = static_cast<size_t>(std::min(bytes - done, kReadWindow));
    const ssize_t got = ::pread(descriptor_, out + done, window, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("cannot read file", path_, errno, fmt::format("offset {}, {} bytes", offset, bytes));
    if (got == 0)
      fail(Exit::data, {.what = "file is truncated",
                        .where = path_,
                        .why = fmt::format("{} bytes wanted at offset {}, the file ends at {}", bytes, offset,
                                           offset + done),
                        .fix = "fetch or write the file again"});
    done += got;
    note_progress();
  }
}

OutputFile::OutputFile(const std::string& path, Mode mode) : path_(path) {
  int flags = O_WRONLY | O_CREAT | kNeverWait | O_NOFOLLOW;  // others may write to the folder
  if (mode == Mode::create_new) flags |= O_EXCL;
  if (mode == Mode::truncate) flags |= O_TRUNC;
  if (mode == Mode::append) flags |= O_APPEND;
  descriptor_ = ::open(path.c_str(), flags, 0644);
  if (descriptor_ < 0 && errno != ENXIO) fail_io("cannot create file", path, errno);
  regular_size(descriptor_, path, Exit::storage);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(const void* data, int64_t bytes) {
  const auto* in = static_cast<const char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    const auto window = static_cast<size_t>(std::min(bytes - done, kWriteWindow));
    const ssize_t put = ::write(descriptor_, in + done, window);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_io("cannot write file", path_, errno, fmt::format("after {} bytes", written_));
    done += put;
    const int64_t before = written_;
    written_ += put;
    note_progress();
    if (written_ / sync_every_ > before / sync_every_) sync_piece();
  }
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) fail_io("cannot sync file", path_, errno);
  note_progress();
}

void OutputFile::sync_piece() {
  const Stopwatch watch;
  sync();
  const double seconds = watch.seconds();
  if (seconds < kShortSync) sync_every_ = std::min(sync_every_ * 2, kMostSynced);
  if (seconds > kLongSync) sync_every_ = std::max(sync_every_ / 2, kLeastSynced);
}

void OutputFile::close() {
  sync();
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) fail_io("cannot close file", path_, errno);
}

bool path_exists(const std::string& path) { return fs::exists(status_of(path)); }

bool is_directory(const std::string& path) { return fs::is_directory(status_of(path)); }

std::string read_file(const std::string& path, int64_t max_bytes) {
  InputFile file(path);
  if (file.size() > max_bytes)
    fail(Exit::data, {.what = "file is too large",
                      .where = path,
                      .why = fmt::format("{} bytes, the limit is {}", file.size(), max_bytes),
                      .fix = "check that this is the file that was meant"});
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(text.data(), 0, file.size());
  return text;
}

void write_file_atomic(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  ::unlink(temporary.c_str());  // of a process of this number that was killed
  try {
    OutputFile file(temporary, OutputFile::Mode::create_new);
    file.write(content);
    file.close();
    rename_path(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

bool is_temporary(const std::string& name) {
  const auto number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const size_t at = name.rfind(".tmp");
  if (at == std::string::npos || at == 0) return false;
  const std::string_view all = name, before = all.substr(0, at), rest = all.substr(at + 4);
  if (rest.empty()) return before.starts_with("step-") && number(before.substr(5));
  if (rest.front() != '.') return false;
  const size_t dash = std::min(rest.find('-'), rest.size());
  return number(rest.substr(1, dash - 1)) && (dash == rest.size() || number(rest.substr(dash + 1)));
}

void sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return;  // one may make entries in it and not read it
  if (descriptor < 0) fail_io("cannot open folder", path, errno);
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0 && error != EINVAL) fail_io("cannot sync folder", path, error);
}

void make_directories(const std::string& path) {
  if (is_directory(path)) return;
  const std::string parent = parent_of(path);
  if (parent != path) make_directories(parent);
  const bool made = ::mkdir(path.c_str(), 0777) == 0;
  if (const int error = errno; !made && !(error == EEXIST && is_directory(path)))
    fail_io("cannot create folder", path, error);
  if (made) sync_directory(parent);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io("cannot rename to " + to, from, errno);
  sync_directory(parent_of(to));
}

bool rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) {
    sync_directory(parent_of(to));
    return true;
  }
  if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) return false;
  fail_io("cannot rename to " + to, from, errno);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_io("cannot remove", path, error.value());
}

std::vector<std::string> list_directory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) fail_io("cannot list folder", path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

std::string join_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::string step_name(int64_t step) { return fmt::format("step-{:06d}", step); }

}  // namespace temper
