#pragma once
// The mpirun that starts the ranks of `--local`: which one, with which words, in which environment. It is
// that of Open MPI, 4 or 5; what the two spell in different ways is said to both by MCA variables.

#include <string>
#include <vector>

namespace temper {

/// The path of the first one in PATH. Exit::environment where there is none, or only that of another MPI.
std::string find_launcher();

/// N ranks of `command` on this host, not bound, however few cores it has.
std::vector<std::string> launcher_words(const std::string& launcher, int ranks,
                                        const std::vector<std::string>& command);

/// The environment of this process without what would make the launcher take part in a job of a scheduler:
/// the job's hosts are not used. `folder`: for the launcher's own files; `messages`: for those that carry
/// messages between ranks, empty: where they usually are; `parent`: the name that ranks join (
/// core/process/local_parent.h).
std::vector<std::string> launcher_environment(const std::string& folder, const std::string& messages,
                                              const std::string& parent);

}  // namespace temper
