#include "src/run/record/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/run/record/tensorboard.h"

namespace temper {
namespace {

constexpr int64_t kMaxMetrics = int64_t{4} << 30;

std::string this_host() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// Step of "step-000010" or "step-000010.jsonl", or -1.
int64_t step_of_name(const std::string& name) {
  if (!name.starts_with("step-")) return -1;
  const size_t end = name.find_first_not_of("0123456789", 5);
  const std::string digits = name.substr(5, end == std::string::npos ? end : end - 5);
  return digits.empty() || digits.size() > 18 ? -1 : std::stoll(digits);
}

int64_t step_of_line(std::string_view text, const std::string& where) {
  const Json line = parse_json(text, where);
  const auto step = line.find("step");
  if (!line.is_object() || step == line.end() || !step->is_number_integer())
    fail(Exit::data, {.what = "not a line of metrics",
                      .where = where,
                      .why = "it is no object with an integer \"step\"",
                      .fix = "correct or remove the line"});
  return step->get<int64_t>();
}

}  // namespace

RunFolder::RunFolder(const std::string& dir, const std::string& name) : root_(join_path(dir, name)) {
  try {
    make_directories(root_);
  } catch (const Error& e) {
    fail(Exit::busy, {.what = "cannot make the run folder",
                      .where = root_,
                      .why = e.problem().why,
                      .fix = "set run.dir to a folder you may write to"});
  }
  const std::string lock = path("owner.lock");
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    fail(Exit::busy, {.what = "cannot write to the run folder",
                      .where = lock,
                      .why = std::strerror(errno),
                      .fix = "set run.dir to a folder you may write to"});
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string owner = read_file(lock, 4096);
    ::close(lock_);
    fail(Exit::busy, {.what = "the run folder is in use",
                      .where = root_,
                      .why = "its owner is " + (owner.empty() ? "another process" : owner),
                      .fix = "wait for it, stop it, or choose another run.name"});
  }
  const std::string me = fmt::format("host {}, pid {}", this_host(), ::getpid());
  if (::ftruncate(lock_, 0) != 0 ||
      ::pwrite(lock_, me.data(), me.size(), 0) != static_cast<ssize_t>(me.size()))
    fail(Exit::storage, {.what = "cannot write the run folder's lock",
                         .where = lock,
                         .why = std::strerror(errno),
                         .fix = "check the space on this file system, or set run.dir to another folder"});
}

RunFolder::~RunFolder() {
  if (lock_ >= 0)
    ::close(lock_);  // the owner's name stays in the file; nobody reads it without the lock held
}

void RunFolder::require_intact() const {
  const std::string lock = path("owner.lock");
  struct stat mine {
  }, found{};
  const bool there = ::fstat(lock_, &mine) == 0 && ::stat(lock.c_str(), &found) == 0;
  if (there && mine.st_dev == found.st_dev && mine.st_ino == found.st_ino) return;
  fail(Exit::storage,
       {.what = "the run folder has vanished",
        .where = root_,
        .why = fmt::format("{} is {} since the run began", lock, there ? "another file" : "gone"),
        .fix = "leave the folder in place while a run owns it; start the run again"});
}

bool RunFolder::has_run() const {
  return path_exists(path("metrics.jsonl")) ||
         (is_directory(path("checkpoints")) && !list_directory(path("checkpoints")).empty());
}

void RunFolder::truncate_to(int64_t step) {
  truncate_metrics(step);
  truncate_event_files(path("tensorboard"), step);
  for (const char* folder : {"rollouts", "validation", "export", "trace", "checkpoints"})
    remove_later(path(folder), step);
}

void RunFolder::truncate_metrics(int64_t step) {
  const std::string file = path("metrics.jsonl");
  if (!path_exists(file)) return;
  const std::string all = read_file(file, kMaxMetrics);
  std::string kept;
  int64_t number = 1;
  for (size_t at = 0; at < all.size(); ++number) {
    const size_t end = all.find('\n', at);
    if (end == std::string::npos) break;  // a line cut by a crash
    if (step_of_line(std::string_view(all).substr(at, end - at), fmt::format("{}:{}", file, number)) > step)
      break;
    kept.append(all, at, end - at + 1);
    at = end + 1;
  }
  if (kept.size() != all.size()) write_file_atomic(file, kept);
}

void RunFolder::remove_later(const std::string& folder, int64_t step) {
  if (!is_directory(folder)) return;
  for (const std::string& name : list_directory(folder))
    if (step_of_name(name) > step) remove_tree(join_path(folder, name));
}

std::string RunFolder::path(const std::string& name) const { return join_path(root_, name); }

}  // namespace temper
