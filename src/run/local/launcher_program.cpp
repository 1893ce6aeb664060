#include "src/run/local/launcher_program.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/helpers/launcher_variables.h"
#include "src/core/process/local_parent.h"
#include "src/core/split.h"
#include "src/core/stopwatch.h"
#include "src/run/local/child.h"

namespace temper {
namespace {

constexpr const char* kNames[] = {"mpirun", "mpirun.openmpi", "orterun", "prterun"};

/// Schedulers whose jobs Open MPI would spread ranks over, as it names them; and rsh: where no ssh is, Open
/// MPI 4 starts nothing, not even on this host.
constexpr const char* kSpreaders = "^slurm,tm,pbs,lsf,gridengine,alps,pals,flux,rsh";

std::vector<std::string> own_environment() {
  std::vector<std::string> list;
  for (char** at = environ; at && *at; ++at) list.emplace_back(*at);
  return list;
}

/// The first line that it prints about itself; one that says nothing for long is none.
std::string version_line(const std::string& program) {
  constexpr double kPatience = 10;  // seconds
  const Child child = start_child(program, {program, "--version"}, own_environment());
  std::string text;
  const Stopwatch waited;
  pollfd wanted{child.output, POLLIN, 0};
  while (read_child(child, text, 4096) && waited.seconds() < kPatience) ::poll(&wanted, 1, 100);
  ::close(child.output);
  ::kill(-child.pid, SIGKILL);
  while (ended_child(child) < 0) ::usleep(1000);
  return text.substr(0, text.find('\n'));
}

/// A setting of the user's, or of the site.
bool is_setting(std::string_view name) {
  return name.find("_MCA_") != std::string_view::npos || name.starts_with("OMPI_ALLOW_RUN_AS_ROOT");
}

}  // namespace

std::string find_launcher() {
  const char* const path = std::getenv("PATH");
  std::string others;
  for (const char* const name : kNames)
    for (const std::string& folder : split(path ? path : "/usr/bin:/bin", ':')) {
      const std::string program = join_path(folder.empty() ? "." : folder, name);
      if (::access(program.c_str(), X_OK) != 0 || is_directory(program)) continue;
      const std::string says = version_line(program);
      for (const char* const own : {"Open MPI", "OpenRTE", "PRRTE"})
        if (says.find(own) != std::string::npos) return program;
      others += fmt::format("{}{} is \"{}\"", others.empty() ? "" : ", ", program, says.substr(0, 80));
    }
  fail(Exit::environment,
       {.what = "there is no mpirun of Open MPI",
        .where = "--local, PATH",
        .why = others.empty() ? "no folder of PATH has mpirun, orterun or prterun" : others,
        .fix = "install Open MPI (Debian, Ubuntu: openmpi-bin) or load its module, or leave --local out: "
               "then there is one rank"});
}

std::vector<std::string> launcher_words(const std::string& launcher, int ranks,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> words{launcher,
                                 "-n",
                                 std::to_string(ranks),
                                 "--host",
                                 fmt::format("localhost:{}", ranks),
                                 "--map-by",
                                 "slot:OVERSUBSCRIBE",
                                 "--bind-to",
                                 "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::vector<std::string> launcher_environment(const std::string& folder, const std::string& messages,
                                              const std::string& parent) {
  std::vector<std::pair<std::string, std::string>> added{
      {kLocalParentVariable, parent},
      {"OMPI_MCA_ras", kSpreaders},
      {"PRTE_MCA_ras", kSpreaders},
      {"OMPI_MCA_plm", kSpreaders},
      {"PRTE_MCA_plm", kSpreaders},
      {"OMPI_MCA_orte_default_hostfile", "none"},
      {"PRTE_MCA_prte_default_hostfile", "none"},
      {"OMPI_MCA_orte_tmpdir_base", folder},
      {"PRTE_MCA_prte_tmpdir_base", folder},
  };
  if (!messages.empty()) {
    added.emplace_back("OMPI_MCA_btl_vader_backing_directory", messages);
    added.emplace_back("OMPI_MCA_btl_sm_backing_directory", messages);
  }
  std::vector<std::string> list;
  for (const std::string& variable : own_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    const bool again =
        std::any_of(added.begin(), added.end(), [&](const auto& a) { return a.first == name; });
    if (!again && (!is_launcher_variable(name) || is_setting(name))) list.push_back(variable);
  }
  for (const auto& [name, value] : added) list.push_back(name + "=" + value);
  return list;
}

}  // namespace temper
