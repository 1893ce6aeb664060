#include "src/comm/watch/start_scan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <tuple>

#include "src/comm/watch/watch_hub.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/process/host.h"

namespace temper {
namespace {

/// A start without a stopped process may be slow for many reasons.
constexpr double kShortestStart = 60;
constexpr double kLauncherSeconds = 10;  // more than any takes to end a job

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The value of a variable in the text of /proc/PID/environ.
std::optional<std::string> variable(const std::string& environment, const std::string& name) {
  const std::string sign = name + "=";
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, sign.size(), sign) == 0)
      return environment.substr(at + sign.size(), end - at - sign.size());
    at = end + 1;
  }
  return std::nullopt;
}

char state_of(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", process));
  const size_t after_name = text.rfind(") ");  // a process may have any name
  return after_name == std::string::npos || after_name + 2 >= text.size() ? '?' : text[after_name + 2];
}

bool is_this_program(pid_t process) {
  std::error_code unknown;
  return std::filesystem::equivalent(fmt::format("/proc/{}/exe", process), "/proc/self/exe", unknown);
}

bool is_stopped(char state) { return state == 'T' || state == 't' || state == 'Z'; }

}  // namespace

StartScan::StartScan() {
  if (const char* job = std::getenv("PMIX_NAMESPACE")) job_ = job;
}

void StartScan::look(double now) {
  ranks_.clear();
  if (job_.empty()) return;
  for (const std::string& name : list_directory("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = read_text("/proc/" + name + "/environ");
    if (variable(environment, "PMIX_NAMESPACE") != job_) continue;
    const std::optional<std::string> rank = variable(environment, "PMIX_RANK");
    if (!rank || rank->empty() || rank->size() > 9 ||
        rank->find_first_not_of("0123456789") != std::string::npos)
      continue;
    Neighbour found{.process = std::stoi(name), .state = state_of(std::stoi(name))};
    if (is_stopped(found.state))
      found.stopped_for = now - stopped_since_.try_emplace(found.process, now).first->second;
    else
      stopped_since_.erase(found.process);
    // A script around the program has the same variables, and so has what the program starts: what is stopped
    // counts, then the oldest that is this program.
    found.program = is_this_program(found.process);
    Neighbour& known = ranks_[std::stoi(*rank)];
    const auto order = [](const Neighbour& n) {
      return std::tuple(n.process == ::getpid(), n.stopped_for, n.program, -n.process);
    };
    if (known.process == 0 || order(found) > order(known)) known = found;
  }
  most_ = std::max(most_, ranks_.size());
  if (ranks_.size() < most_ && !one_ended_) one_ended_ = now;
}

bool StartScan::speaks(double now) const {
  if (one_ended_ && now < *one_ended_ + kLauncherSeconds) return false;
  for (const auto& [rank, neighbour] : ranks_)
    if (!is_stopped(neighbour.state)) return neighbour.process == ::getpid();
  return false;
}

std::string StartScan::report(double now, double limit) const {
  const std::string host = this_host();
  std::string text, others;
  for (const auto& [rank, found] : ranks_) {
    const std::string place = fmt::format("rank {}, host {}, pid {}, phase start", rank, host, found.process);
    if (found.stopped_for > limit)
      text += fmt::format(
          "rank {} on host {} does not answer in start\n  where: {}\n"
          "  why:   Linux shows it as stopped ({}) for {}, the limit is {} s\n",
          rank, host, place, found.state, since(found.stopped_for), limit);
    else
      others += "  waits: " + place + "\n";
  }
  if (text.empty() && now > std::max(limit, kShortestStart) && ranks_.size() > 1)
    text = fmt::format(
        "the ranks do not come together\n  where: start of MPI, seen from host {}\n"
        "  why:   {} passed, and no process of this host is stopped\n",
        host, since(now));
  return text.empty() ? text : text + others;
}

}  // namespace temper
