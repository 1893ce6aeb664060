#include "src/run/report/history/run_state.h"

#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/process/host.h"
#include "src/run/report/history/run_files.h"

namespace temper {
namespace {

constexpr int64_t kMaxOwner = 4096;

/// "host H, pid P" of the file that the owner of a run folder holds; empty: nobody is named.
std::string owner_text(const std::string& folder) {
  std::vector<std::string> unsaid;
  if (!may_be_read(folder, "owner.lock", unsaid)) return "";
  try {
    return read_file(join_path(folder, "owner.lock"), kMaxOwner);
  } catch (const Error&) {
    return "";
  }
}

double seconds_since_change(const std::string& path) {
  std::error_code absent;
  const auto changed = std::filesystem::last_write_time(path, absent);
  if (absent) return std::numeric_limits<double>::infinity();
  return std::chrono::duration<double>(std::filesystem::file_time_type::clock::now() - changed).count();
}

RunState state_of_owner(const RunHistory& run) {
  constexpr double kSilent = 3600;
  const std::string owner = owner_text(run.folder), mine = "host " + this_host() + ", pid ";
  if (!owner.starts_with(mine))
    return seconds_since_change(join_path(run.folder, "metrics.jsonl")) < kSilent ? RunState::running
                                                                                  : RunState::silent;
  const long process = std::atol(owner.c_str() + mine.size());
  const bool alive = process > 0 && (::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
  return alive ? RunState::running : RunState::lost;
}

}  // namespace

RunState run_state(const RunHistory& run) {
  std::string last;
  for (const RunEvent& event : run.events)
    if (event.kind != "warning" && event.kind != "error") last = event.kind;
  if (last == "end") return RunState::ended;
  if (last == "stop") return RunState::stopped;
  if (!last.empty()) return state_of_owner(run);
  if (run.metrics.steps.empty()) return RunState::fresh;
  const bool whole = run.config && run.last_step() >= run.config->run.steps;
  return whole ? RunState::ended : state_of_owner(run);
}

const char* run_state_name(RunState state) {
  switch (state) {
    case RunState::running:
      return "running";
    case RunState::ended:
      return "ended";
    case RunState::stopped:
      return "stopped";
    case RunState::lost:
      return "cut off";
    case RunState::silent:
      return "silent";
    default:
      return "not begun";
  }
}

}  // namespace temper
