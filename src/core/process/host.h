#pragma once
// The machine that this process runs on.

#include <string>

namespace temper {

/// Its name, for reports and locks; "unknown" where it has none.
std::string this_host();

}  // namespace temper
