#include "src/run/local/job_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "src/comm/shared_memory.h"
#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr std::string_view kPrefix = "temper-local-";  // and six letters
constexpr size_t kLetters = 6;
constexpr const char* kShared = "/dev/shm";

std::string temporary_folder() {
  const char* const named = std::getenv("TMPDIR");
  return named && *named ? named : "/tmp";
}

void remove_quietly(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

/// Names of processes would not tell who lives: containers share such folders.
int lock_folder(const std::string& folder) {
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock < 0) return -1;
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  ::close(lock);
  return -1;
}

/// A folder that was just made is not locked yet.
bool may_be_left(const std::string& folder) {
  constexpr time_t kFirstMoments = 10;
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         std::time(nullptr) - status.st_mtime > kFirstMoments;
}

}  // namespace

void remove_left_job_folders(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string(), path = entry.path().string();
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kLetters || !may_be_left(path))
      continue;
    const int lock = lock_folder(path);
    if (lock < 0) continue;
    remove_quietly(path);
    ::close(lock);
  }
}

JobFolder::Locked JobFolder::make(const std::string& below) {
  std::string pattern = join_path(below, std::string(kPrefix) + std::string(kLetters, 'X'));
  if (!::mkdtemp(pattern.data())) return {};
  return {pattern, lock_folder(pattern)};
}

void JobFolder::remove(const Locked& folder) {
  if (!folder.path.empty()) remove_quietly(folder.path);
  if (folder.lock >= 0) ::close(folder.lock);
}

JobFolder::JobFolder(int ranks) {
  const std::string temporary = temporary_folder();
  for (const std::string& folder : {temporary, std::string(kShared)}) remove_left_job_folders(folder);
  own_ = make(temporary);
  if (own_.path.empty())
    fail(Exit::environment, {.what = "no folder can be made for the launcher's files",
                             .where = temporary,
                             .why = std::strerror(errno),
                             .fix = "name one that may be written in TMPDIR"});
  if (messages_have_room(kShared, ranks)) messages_ = make(kShared);
}

JobFolder::~JobFolder() {
  remove(own_);
  remove(messages_);
}

}  // namespace temper
