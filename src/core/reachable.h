#pragma once
// Paths that a process may not look at are not taken for absent ones.

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "src/core/check.h"

namespace temper {

/// Exit::storage where a folder on the way to `path` may not be entered; whether the path exists is not asked.
inline void require_reachable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 || errno != EACCES) return;
  fail(Exit::storage, {.what = "a path cannot be looked at",
                       .where = path,
                       .why = std::strerror(EACCES),
                       .fix = "give the user of this process the right to enter the folders on the way to it"});
}

}  // namespace temper
