#pragma once
// What `temper --version` says: commit, compiler, libraries and drivers as built and as found.

#include <string>

namespace temper {

std::string version_text();

}  // namespace temper
