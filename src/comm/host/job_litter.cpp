#include "src/comm/host/job_litter.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "src/comm/shared_memory.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr const char* kMark = "temper-job";
constexpr std::string_view kSessions = "ompi.";

std::string sessions_of(const std::string& session) {
  return std::filesystem::path(session).parent_path().string();
}

/// "vader_segment.HOST.USER.JOB.": what the names of a job's segments begin with.
std::string segment_prefix(const std::string& session, const std::string& job) {
  const std::string of_user = std::filesystem::path(sessions_of(session)).filename().string();
  return fmt::format("vader_segment.{}.{}.", of_user.substr(std::min(kSessions.size(), of_user.size())), job);
}

/// The number of "pid.NUMBER"; 0: another name.
pid_t pid_of(const std::string& name) {
  constexpr std::string_view kPid = "pid.";
  const std::string digits = name.substr(std::min(kPid.size(), name.size()));
  const bool legal = name.starts_with(kPid) && !digits.empty() && digits.size() < 10 &&
                     digits.find_first_not_of("0123456789") == std::string::npos;
  return legal ? std::atoi(digits.c_str()) : 0;
}

bool own_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

/// The job's number, as its segments have it; empty: no job of temper.
std::string marked_job(const std::string& session) {
  const std::string file = join_path(session, kMark);
  struct stat info {};
  const bool marked = ::lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
                      info.st_uid == ::geteuid() && info.st_size > 0 && info.st_size <= 8;
  if (!marked) return "";
  std::string job = read_file(file, 8);
  return job.find_first_not_of("0123456789abcdef") == std::string::npos ? job : "";
}

/// Removes the segments; -1: one of them is in use.
int64_t remove_segments(const std::string& folder, const std::string& prefix) {
  const SharedMemory found = look_at_shared_memory(folder);
  if (!found.usable) return 0;
  std::vector<std::string> all = list_directory(folder);
  std::erase_if(all, [&](const std::string& name) { return !name.starts_with(prefix); });
  int64_t bytes = 0;
  size_t left = 0;
  for (const SharedMemory::Left& file : found.left)
    if (file.name.starts_with(prefix)) bytes += file.bytes, ++left;
  if (left < all.size()) return -1;
  for (const std::string& name : all) ::unlink(join_path(folder, name).c_str());
  return bytes;
}

}  // namespace

void mark_job(const std::string& session, uint32_t job) {
  const std::string file = join_path(session, kMark);
  if (own_folder(session) && !path_exists(file))
    OutputFile(file, OutputFile::Mode::create_new).write(fmt::format("{:x}", job));
}

Cleared clear_killed_jobs(const std::string& session, const std::string& folder) {
  Cleared cleared;
  const std::string sessions = sessions_of(session);
  const bool of_open_mpi = std::filesystem::path(sessions).filename().string().starts_with(kSessions);
  if (!of_open_mpi || !own_folder(sessions)) return cleared;
  for (const std::string& name : list_directory(sessions)) {
    const std::string path = join_path(sessions, name);
    const pid_t pid = pid_of(name);
    if (pid == 0 || path == session || ::kill(pid, 0) == 0 || errno != ESRCH || !own_folder(path)) continue;
    const std::string job = marked_job(path);
    if (job.empty()) continue;
    const int64_t bytes = remove_segments(folder, segment_prefix(path, job));
    if (bytes < 0) continue;
    remove_tree(path);
    ++cleared.jobs;
    cleared.bytes += bytes;
  }
  return cleared;
}

}  // namespace temper
