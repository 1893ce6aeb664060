#include "src/comm/shared_memory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <tuple>

#include "src/comm/host/job_litter.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/printable.h"
#include "src/core/text/short_number.h"

namespace temper {
namespace {

// Names of Open MPI 4.
constexpr const char* kFolderVariable = "OMPI_MCA_btl_vader_backing_directory";
constexpr const char* kSegmentVariable = "OMPI_MCA_btl_vader_segment_size";
constexpr const char* kFilePrefix = "vader_segment.";
constexpr int64_t kSegment = int64_t{4} << 20, kSegmentHead = 4096;

std::string mib_text(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

/// The number that a variable begins with ("4(x2)" of Slurm, too), or `absent`.
int64_t number_in(const char* name, int64_t absent) {
  const int64_t number = std::atoll(variable(name).c_str());
  return number > 0 ? number : absent;
}

/// Those that a process of this user has mapped, by their paths.
std::set<std::string> mapped_files(const std::string& prefix) {
  std::set<std::string> files;
  std::error_code unknown;
  for (const auto& process : std::filesystem::directory_iterator("/proc", unknown)) {
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (const size_t at = line.find(prefix); at != std::string::npos) files.insert(line.substr(at));
  }
  return files;
}

/// A file of another job may not be mapped yet in its first moments.
bool is_left(const std::string& path, const std::set<std::string>& mapped, int64_t& bytes) {
  constexpr time_t kFirstMoments = 1;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid() ||
      std::time(nullptr) - status.st_mtime <= kFirstMoments || mapped.contains(path))
    return false;
  bytes = int64_t{status.st_blocks} * 512;
  return true;
}

std::string left_text(const SharedMemory& found) {
  return fmt::format("killed jobs have {} of it in {}", mib_text(found.left_bytes()),
                     count_text(std::ssize(found.left), "file"));
}

/// What removes them, by jobs, without the files of one that runs.
std::string remove_text(const std::string& folder, const SharedMemory& found) {
  constexpr size_t kMostJobs = 8;
  std::set<std::string> jobs;  // "vader_segment.HOST.USER.JOB", without ".RANK"
  for (const SharedMemory::Left& file : found.left) jobs.insert(file.name.substr(0, file.name.rfind('.')));
  std::string text = "rm";
  for (const std::string& job : jobs) {
    if (std::distance(jobs.begin(), jobs.find(job)) == kMostJobs) return text + " and so on";
    text += " " + join_path(folder, job) + ".*";
  }
  return text;
}

/// A share of the folder that is worth a word although there is room: few small files are not.
bool much_is_left(const SharedMemory& found) {
  constexpr int64_t kParts = 64, kMuch = int64_t{64} << 20;
  return found.left_bytes() > std::min(found.total / kParts, kMuch);
}

/// The largest that a rank's file may become.
int64_t segment_bytes() { return number_in(kSegmentVariable, kSegment) + kSegmentHead; }

bool has_room(const SharedMemory& found, int64_t bytes) { return found.usable && found.free >= bytes; }

/// By the first rank of each host, where an mpirun of Open MPI has started it.
void clear_litter(const std::string& folder) {
  const std::string session = variable("OMPI_MCA_orte_jobfam_session_dir");
  const int64_t job = number_in("OMPI_MCA_ess_base_jobid", 0);
  if (session.empty() || job == 0) return;
  try {
    const Cleared cleared = clear_killed_jobs(session, folder);
    mark_job(session, static_cast<uint32_t>(job));
    if (cleared.jobs > 0)
      std::fprintf(stderr, "temper: removed what %s left: %s in %s, and session folders\n",
                   count_text(cleared.jobs, "killed job").c_str(), mib_text(cleared.bytes).c_str(),
                   printable(folder).c_str());
  } catch (const Error&) {  // a run needs none of it
  }
}

}  // namespace

int64_t SharedMemory::left_bytes() const {
  int64_t bytes = 0;
  for (const Left& file : left) bytes += file.bytes;
  return bytes;
}

SharedMemory look_at_shared_memory(const std::string& folder) {
  SharedMemory found;
  struct statvfs system {};
  if (::access(folder.c_str(), W_OK | X_OK) != 0 || ::statvfs(folder.c_str(), &system) != 0) return found;
  found.usable = true;
  found.free = static_cast<int64_t>(system.f_bavail * system.f_frsize);
  found.total = static_cast<int64_t>(system.f_blocks * system.f_frsize);
  std::vector<std::string> names = list_directory(folder);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(kFilePrefix); });
  if (names.empty()) return found;
  const std::set<std::string> mapped = mapped_files(join_path(folder, kFilePrefix));
  for (const std::string& name : names)
    if (int64_t bytes = 0; is_left(join_path(folder, name), mapped, bytes))
      found.left.push_back({name, bytes});
  std::sort(found.left.begin(), found.left.end(), [](const auto& a, const auto& b) {
    return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
  });
  return found;
}

std::string shared_memory_warning(const std::string& folder, const SharedMemory& found, int64_t ranks,
                                  int64_t segment, const std::string& instead) {
  const bool enough = has_room(found, ranks * segment);
  std::string text = enough          ? left_text(found)
                     : !found.usable ? folder + " is not there or may not be written"
                                     : fmt::format("{} is too small: {} free of {}", folder,
                                                   mib_text(found.free), mib_text(found.total));
  if (enough && !much_is_left(found)) return "";
  if (enough) return fmt::format("{}: {}\n  fix:   {}", folder, text, remove_text(folder, found));
  text +=
      fmt::format("\n  why:   {} ranks of this host keep up to {} each in it for their messages, {} in all",
                  ranks, mib_text(segment), mib_text(ranks * segment));
  if (!found.left.empty()) text += "; " + left_text(found);
  text += instead.empty()
              ? "\n  now:   a message that finds no room ends its rank with SIGBUS (Bus error)"
              : fmt::format("\n  now:   in this run they are in {}, which may be slower", instead);
  text += fmt::format("\n  fix:   mount -o remount,size=1g {}; in a container --shm-size=1g or --ipc=host",
                      folder);
  return found.left.empty() ? text : text + "; " + remove_text(folder, found);
}

bool messages_have_room(const std::string& folder, int64_t ranks) {
  return variable(kFolderVariable).empty() &&
         has_room(look_at_shared_memory(folder), ranks * segment_bytes());
}

void prepare_shared_memory() {
  const int64_t ranks = number_in("OMPI_COMM_WORLD_LOCAL_SIZE", number_in("SLURM_STEP_TASKS_PER_NODE", 1));
  const std::string chosen = variable(kFolderVariable), folder = chosen.empty() ? "/dev/shm" : chosen;
  const std::string local = variable("OMPI_COMM_WORLD_LOCAL_RANK") + variable("SLURM_LOCALID");
  if (local == "0") clear_litter(folder);
  if (ranks < 2) return;
  const int64_t segment = segment_bytes(), need = ranks * segment;
  const SharedMemory found = look_at_shared_memory(folder);
  const std::string temporary = variable("TMPDIR").empty() ? "/tmp" : variable("TMPDIR");
  std::string instead;
  if (chosen.empty() && !has_room(found, need) && has_room(look_at_shared_memory(temporary), need)) {
    instead = temporary;
    ::setenv(kFolderVariable, instead.c_str(), 1);
  }
  const std::string text = shared_memory_warning(folder, found, ranks, segment, instead);
  if (!text.empty() && local.starts_with("0"))
    std::fprintf(stderr, "temper: warning: %s\n", printable(text).c_str());
}

}  // namespace temper
