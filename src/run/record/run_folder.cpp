#include "src/run/record/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <set>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/log.h"
#include "src/core/process/host.h"
#include "src/core/text/file_lines.h"
#include "src/core/text/printable.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/run/record/set_aside.h"
#include "src/run/record/tensorboard.h"

namespace temper {
namespace {

/// What a run leaves besides logs, configs and events.jsonl; checkpoints first: a start that is cut short
/// must not find them without the rest.
constexpr std::array kOfARun{"checkpoints", "metrics.jsonl", "rollouts",    "validation",
                             "export",      "trace",         "tensorboard", "nonfinite",
                             "mismatch",    "report.html",   "tracker.json"};
constexpr int64_t kMaxMetrics = int64_t{4} << 30;
constexpr int64_t kMaxConfig = int64_t{16} << 20;
constexpr int64_t kNamedFiles = 20;  // of those that are missing

bool is_empty_file(const std::string& path) { return InputFile(path).size() == 0; }

/// Step of "step-000010" or "step-000010.jsonl", or -1.
int64_t step_of_name(const std::string& name) {
  if (!name.starts_with("step-")) return -1;
  const size_t end = name.find_first_not_of("0123456789", 5);
  const std::string digits = name.substr(5, end == std::string::npos ? end : end - 5);
  return digits.empty() || digits.size() > 18 ? -1 : std::stoll(digits);
}

/// -1: the line cannot be read.
int64_t step_of_line(std::string_view text) {
  try {
    const Json line = parse_json(text, "metrics");
    const auto step = line.find("step");
    const bool legal = line.is_object() && step != line.end() && step->is_number_integer();
    return legal ? std::max<int64_t>(-1, step->get<int64_t>()) : -1;
  } catch (const Error&) {
    return -1;
  }
}

/// Runs of steps from first to last that are not in `there`. A checkpoint says how far they go: they are not
/// counted one by one.
std::vector<std::pair<int64_t, int64_t>> missing_steps(const std::set<int64_t>& there, int64_t first,
                                                       int64_t last) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (auto next = there.lower_bound(first); first <= last; ++next) {
    const bool none = next == there.end() || *next > last;
    const int64_t end = none ? last + 1 : *next;
    if (end > first) runs.emplace_back(first, end - 1);
    if (none) break;
    first = end + 1;
  }
  return runs;
}

/// Whether a run can write to it, or read and keep it.
bool usable_file(const std::string& file, int64_t max_bytes) {
  std::error_code error;
  return !path_exists(file) || (std::filesystem::is_regular_file(file, error) &&
                                static_cast<int64_t>(std::filesystem::file_size(file, error)) <= max_bytes);
}

/// What lies in the place of a folder or file of a run and is none, or is larger than what a run reads.
std::vector<std::string> in_the_way(const std::string& root) {
  constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();
  std::vector<std::string> names, files{"metrics.jsonl", "events.jsonl", "report.html", "tracker.json"};
  const auto is_file = [&](const std::string& name) {
    return std::find(files.begin(), files.end(), name) != files.end();
  };
  const auto path = [&](const std::string& name) { return join_path(root, name); };
  for (const std::string name : kOfARun)
    if (!is_file(name) && path_exists(path(name)) && !is_directory(path(name))) names.push_back(name);
  if (path_exists(path("logs")) && !is_directory(path("logs"))) names.push_back("logs");
  for (const std::string& name : list_directory(root))
    if (name.starts_with("config") && name.ends_with(".toml")) files.push_back(name);
  if (is_directory(path("logs")))
    for (const std::string& name : list_directory(path("logs")))
      if (const std::string log = join_path("logs", name); log.ends_with(".log") && !is_directory(path(log)))
        files.push_back(log);  // a folder in the place of a log is refused
  for (const std::string& name : files) {
    const bool config = name.ends_with(".toml");
    const int64_t most = config ? kMaxConfig : name == "metrics.jsonl" ? kMaxMetrics : kAnySize;
    if (!usable_file(path(name), most)) names.push_back(name);
  }
  return names;
}

void clear_the_way(const std::string& root) {
  SetAside aside(root);
  std::string text;
  for (const std::string& name : in_the_way(root)) {
    aside.move(name);
    text += (text.empty() ? "" : ", ") + name;
  }
  if (!text.empty())  // there is no log yet
    std::fprintf(stderr, "temper: warning: no file or folder of a run, or too large: %s; set aside in %s\n",
                 printable(text).c_str(), printable(aside.folder()).c_str());
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  const std::string time(text, std::strftime(text, sizeof text, "%FT%T%z", &local));
  return time.substr(0, time.size() - 2) + ":" + time.substr(time.size() - 2);
}

}  // namespace

void EventLines::write(const char* event, const Json& more) const {
  Json line = {{"time", local_time()}, {"event", event}};
  line.update(more);
  const char* const end_of_cut = path_exists(file_) && !ends_a_line(file_) ? "\n" : "";
  OutputFile file(file_, OutputFile::Mode::append);
  file.write(end_of_cut + dump_json_line(line) + "\n");
  file.close();
}

RunFolder::RunFolder(const std::string& dir, const std::string& name) : root_(join_path(dir, name)) {
  try {
    make_directories(root_);
  } catch (const Error& e) {
    fail(Exit::busy, {.what = "cannot make the run folder",
                      .where = root_,
                      .why = e.problem().why,
                      .fix = "set run.dir to a folder you may write to"});
  }
  refuse_links();
  const std::string lock = path("owner.lock");
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (lock_ < 0)
    fail(Exit::busy, {.what = "cannot write to the run folder",
                      .where = lock,
                      .why = std::strerror(errno),
                      .fix = "set run.dir to a folder you may write to"});
  take_lock(lock);
  remove_leftovers();  // before they fill a file system that the name below has to go to
  clear_the_way(root_);
  const std::string me = fmt::format("host {}, pid {}", this_host(), ::getpid());
  if (::ftruncate(lock_, 0) != 0 ||
      ::pwrite(lock_, me.data(), me.size(), 0) != static_cast<ssize_t>(me.size()))
    fail(Exit::storage, {.what = "cannot write the run folder's lock",
                         .where = lock,
                         .why = std::strerror(errno),
                         .fix = "check the space on this file system, or set run.dir to another folder"});
}

void RunFolder::take_lock(const std::string& lock) {
  int result;
  do result = ::flock(lock_, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0) return;
  if (errno == EWOULDBLOCK) {
    const std::string owner = read_file(lock, 4096);
    ::close(lock_);
    fail(Exit::busy, {.what = "the run folder is in use",
                      .where = root_,
                      .why = "its owner is " + (owner.empty() ? "another process" : owner),
                      .fix = "wait for it, stop it, or choose another run.name"});
  }
  lease_.emplace(path("owner.lease"));
}

RunFolder::~RunFolder() {
  if (lock_ >= 0)
    ::close(lock_);  // the owner's name stays in the file; nobody reads it without the lock held
}

void RunFolder::require_intact() const {
  const std::string lock = path("owner.lock");
  struct stat mine {
  }, found{};
  if (lease_ && !lease_->held())
    fail(Exit::storage,
         {.what = "the run folder has another owner",
          .where = path("owner.lease"),
          .why = "the lease of this process was not renewed for a minute: it was stopped, or cut "
                 "off from the file system",
          .fix = "leave the folder to the new owner, or start the run again when that has ended"});
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

/// A link to a folder is the user's way to another disk; a link to a file may lead anywhere.
void RunFolder::refuse_links() const {
  for (const char* folder : {"", "logs", "tensorboard"}) {
    if (!is_directory(path(folder))) continue;
    for (const std::string& name : list_directory(path(folder))) {
      const std::string file = join_path(path(folder), name);
      if (std::filesystem::is_symlink(file) && !is_directory(file))
        fail(Exit::busy, {.what = "a file of the run folder is a symbolic link",
                          .where = file,
                          .why = "what it leads to would be written over",
                          .fix = "remove the link, or choose another run.name"});
    }
  }
}

void RunFolder::remove_leftovers() {
  std::vector<std::string> folders{root_};
  for (const char* name : kOfARun)
    if (is_directory(path(name))) folders.push_back(path(name));
  for (const std::string& name : list_directory(root_))
    if (name.starts_with("set-aside-") && is_directory(path(name))) folders.push_back(path(name));
  for (const std::string& folder : folders)
    for (const std::string& name : list_directory(folder))
      if (is_temporary(name)) remove_tree(join_path(folder, name));
  if (is_directory(path("checkpoints"))) finish_replacing(path("checkpoints"));
}

void RunFolder::truncate_to(int64_t step, int64_t said) {
  remove_leftovers();
  set_aside_later(step);
  truncate_metrics(said);
  truncate_event_files(path("tensorboard"), said);
  for (const char* folder : {"rollouts", "validation", "trace", "nonfinite", "mismatch"})
    remove_later(path(folder), step);
}

void RunFolder::set_aside() {
  const auto is_there = [&](const char* name) {
    if (std::string_view(name) == "metrics.jsonl")
      return path_exists(path(name)) && !is_empty_file(path(name));
    return is_directory(path(name)) && !list_directory(path(name)).empty();
  };
  // Event files of a run that came to no step have a header alone.
  if (std::none_of(kOfARun.begin(), kOfARun.end(), [&](const char* name) {
        return std::string_view(name) != "tensorboard" && is_there(name);
      }))
    return clear();
  SetAside aside(root_);
  for (const char* name : kOfARun) aside.move(name);
  if (path_exists(path("config.toml")))
    write_file_atomic(join_path(aside.folder(), "config.toml"), read_file(path("config.toml"), kMaxConfig));
  log::warn("the run folder holds what no checkpoint of it goes on from: set aside in {}", aside.folder());
}

void RunFolder::clear() {
  for (const char* name : kOfARun)
    if (path_exists(path(name))) remove_tree(path(name));
}

void RunFolder::set_aside_later(int64_t step) {
  SetAside aside(root_);
  for (const std::string folder : {"checkpoints", "export"}) {
    if (!is_directory(path(folder))) continue;
    for (const std::string& name : list_directory(path(folder))) {
      if (step_of_name(name) <= step) continue;
      const std::string later = join_path(folder, name);
      if (folder == "export" || path_exists(path(join_path(later, "manifest.json"))))
        aside.move(later);
      else
        remove_tree(path(later));  // a removal that was cut short
    }
  }
  if (!aside.folder().empty())
    log::warn("checkpoints and exports beyond step {} are set aside in {}", step, aside.folder());
}

void RunFolder::keep_config(const std::string& text) const {
  const std::string newest = path("config.toml");
  if (path_exists(newest)) {
    const std::string before = read_file(newest, kMaxConfig);
    if (before == text) return;
    const auto numbered = [&](int n) { return path(fmt::format("config-{}.toml", n)); };
    int number = 1;
    while (path_exists(numbered(number))) ++number;
    if (number == 1 || read_file(numbered(number - 1), kMaxConfig) != before)
      write_file_atomic(numbered(number), before);
  }
  write_file_atomic(newest, text);
}

/// Keeps the lines that can be read, each step once and in order. A file with others is set aside whole.
void RunFolder::truncate_metrics(int64_t step) {
  const std::string file = path("metrics.jsonl");
  if (!path_exists(file)) return;
  const std::string all = read_file(file, kMaxMetrics);
  std::string kept;
  bool damaged = false;
  int64_t last = -1;
  for (size_t at = 0, end; (end = all.find('\n', at)) != std::string::npos; at = end + 1) {
    const int64_t of_line = step_of_line(std::string_view(all).substr(at, end - at));
    damaged = damaged || of_line <= last;
    if (of_line <= last || of_line > step) continue;
    last = of_line;
    kept.append(all, at, end - at + 1);
  }
  if (damaged) {
    SetAside aside(root_);
    aside.move("metrics.jsonl");
    log::warn("metrics.jsonl has lines that cannot be read: as it was it is in {}", aside.folder());
  }
  if (kept.size() != all.size()) write_file_atomic(file, kept);
}

std::optional<int64_t> RunFolder::first_line() const {
  if (!path_exists(path("metrics.jsonl"))) return std::nullopt;
  const std::string all = read_file(path("metrics.jsonl"), kMaxMetrics);
  const int64_t step = step_of_line(std::string_view(all).substr(0, all.find('\n')));
  return step > 0 ? std::optional(step) : std::nullopt;
}

void RunFolder::tell_what_is_missing(int64_t first, int64_t last, bool with_rollouts) const {
  std::set<int64_t> lines, files;
  if (path_exists(path("metrics.jsonl"))) {
    const std::string all = read_file(path("metrics.jsonl"), kMaxMetrics);
    for (size_t at = 0, end; (end = all.find('\n', at)) != std::string::npos; at = end + 1)
      lines.insert(step_of_line(std::string_view(all).substr(at, end - at)));
  }
  std::string missing;
  for (const auto& [begin, end] : missing_steps(lines, first, last))
    missing += fmt::format("{}{} to {}", missing.empty() ? "" : ", ", begin, end);
  if (!missing.empty()) log::warn("metrics.jsonl of {} is short: steps {} are missing", root_, missing);
  if (!with_rollouts) return;
  if (is_directory(path("rollouts")))
    for (const std::string& name : list_directory(path("rollouts"))) files.insert(step_of_name(name));
  int64_t named = 0, all = 0;
  for (const auto& [begin, end] : missing_steps(files, first, last)) {
    all += end - begin + 1;
    for (int64_t s = begin; s <= end && named < kNamedFiles; ++s, ++named)
      log::warn("{} is missing", path("rollouts/" + step_name(s) + ".jsonl"));
  }
  if (all > named) log::warn("{} more files of {} are missing", all - named, path("rollouts"));
}

void RunFolder::remove_later(const std::string& folder, int64_t step) {
  if (!is_directory(folder)) return;
  for (const std::string& name : list_directory(folder))
    if (step_of_name(name) > step) remove_tree(join_path(folder, name));
}

std::string RunFolder::path(const std::string& name) const { return join_path(root_, name); }

}  // namespace temper
