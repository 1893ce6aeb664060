#pragma once
// Processes as Linux shows them in /proc.

#include <sys/types.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "src/core/file.h"

namespace temper {

inline std::vector<pid_t> all_processes() {
  std::vector<pid_t> all;
  for (const std::string& name : list_directory("/proc"))
    if (name.find_first_not_of("0123456789") == std::string::npos) all.push_back(std::stoi(name));
  return all;
}
/// What the process was started with; a zombie has nothing.
inline std::string environment_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  return '\0' + std::string(std::istreambuf_iterator<char>(file), {}) + '\0';
}
inline bool has_variable(pid_t process, const std::string& variable) {
  return environment_of(process).find('\0' + variable + '\0') != std::string::npos;
}
/// `name` with its "=".
inline std::string variable_of(pid_t process, const std::string& name) {
  const std::string all = environment_of(process);
  const size_t at = all.find('\0' + name);
  if (at == std::string::npos) return "";
  const size_t begin = at + 1 + name.size();
  return all.substr(begin, all.find('\0', begin) - begin);
}
/// All that were started with the variable, whoever is the parent now.
inline std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  for (const pid_t process : all_processes())
    if (has_variable(process, variable)) found.push_back(process);
  return found;
}
/// Those of ranks that mpirun has started, by rank; of two of one rank the first.
inline std::map<int, pid_t> ranks_among(const std::vector<pid_t>& processes) {
  std::map<int, pid_t> found;
  for (const pid_t process : processes)
    if (const std::string rank = variable_of(process, "OMPI_COMM_WORLD_RANK="); !rank.empty())
      found.emplace(std::stoi(rank), process);
  return found;
}
/// Those that keep the reward programs of a rank (core/helpers/keeper.h).
inline std::vector<pid_t> keepers_among(std::vector<pid_t> processes) {
  std::erase_if(processes, [](pid_t process) {
    std::string name;
    std::ifstream(fmt::format("/proc/{}/comm", process)) >> name;
    return name != "helper-keeper";
  });
  return processes;
}
/// "S 123 ... EXIT-STATUS", from /proc; empty when there is no such process.
inline std::string state_and_parent(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text, '\0');              // nothing where the process ends before it is read
  const size_t after_name = text.rfind(") ");  // a process may have any name
  return after_name == std::string::npos ? "" : text.substr(after_name + 2);
}

}  // namespace temper
