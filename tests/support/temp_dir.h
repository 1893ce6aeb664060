#pragma once
// A folder of its own for one test, removed at the end with everything in it.

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "src/core/check.h"

namespace temper {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "temper-test-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr, "no temporary folder {}", pattern);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace temper
