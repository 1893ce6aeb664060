#include "src/run/record/set_aside.h"

#include <filesystem>

#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {

void SetAside::move(const std::string& name) {
  const std::string from = join_path(root_, name);
  if (!path_exists(from)) return;
  for (int number = 1; folder_.empty(); ++number)
    if (const std::string free = join_path(root_, fmt::format("set-aside-{}", number)); !path_exists(free))
      folder_ = free;
  const std::string to = join_path(folder_, name);
  make_directories(std::filesystem::path(to).parent_path().string());
  rename_path(from, to);
}

}  // namespace temper
