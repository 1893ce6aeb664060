#include "src/core/process/children.h"

#include <dirent.h>

#include <cstdio>
#include <string>

namespace temper {

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  const std::string tasks = "/proc/" + std::to_string(parent) + "/task/";
  DIR* const threads = ::opendir(tasks.c_str());
  if (!threads) return found;
  while (const dirent* thread = ::readdir(threads))
    if (std::FILE* file = std::fopen((tasks + thread->d_name + "/children").c_str(), "re")) {
      for (int pid = 0; std::fscanf(file, "%d", &pid) == 1;) found.push_back(pid);
      std::fclose(file);
    }
  ::closedir(threads);
  return found;
}

}  // namespace temper
