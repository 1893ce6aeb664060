#include "src/run/session/saved_file.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/core/log.h"

namespace temper {

void tell_saved(int64_t step, const std::string& checkpoint) {
  const char* const name = std::getenv("TEMPER_SAVED_FILE");
  if (!name || !*name) return;
  const std::string temporary = fmt::format("{}.tmp.{}", name, ::getpid());
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(checkpoint, error);
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << step << ' ' << path.lexically_normal().string() << '\n';
  file.close();
  if (error || !file || std::rename(temporary.c_str(), name) != 0)
    log::warn("TEMPER_SAVED_FILE = {} cannot be written: what was saved is not told there", name);
}

}  // namespace temper
