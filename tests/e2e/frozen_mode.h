#pragma once
// What a test of frozen bits does, chosen by the environment:
//   (nothing)                 build/temper against the digests in tests/golden/frozen
//   FROZEN_PROGRAM=PATH       this program in its place
//   FROZEN_OTHER=PATH         the program against another one, item by item; golden files do not count
//   FROZEN_WRITE=1            writes the digests of the program into the golden files
// tools/same_bits.sh and tools/freeze_runs.sh set them.

#include <cstdlib>

#include "tests/e2e/frozen_run.h"

namespace temper {

struct FrozenMode {
  std::string program = "build/temper", other;
  bool write = false;

  static FrozenMode read() {
    FrozenMode mode;
    if (const char* path = std::getenv("FROZEN_PROGRAM")) mode.program = path;
    if (const char* path = std::getenv("FROZEN_OTHER")) mode.other = path;
    mode.write = std::getenv("FROZEN_WRITE") != nullptr;
    return mode;
  }
};

/// Why golden digests say nothing on this system of runs that do not call some functions; empty when they
/// hold.
inline std::string why_not_comparable(const Json& golden, const std::string& path,
                                      const std::set<std::string>& uncalled) {
  const std::string functions = other_libm(golden.at("libm"), uncalled);
  if (functions.empty()) return "";
  return fmt::format(
      "NOT COMPARED: libm rounds otherwise here ({}) than where the digests were frozen; compare with a "
      "build "
      "of the commit that froze them (git log -1 {}): tools/same_bits.sh OLD_TEMPER build/temper",
      functions, path);
}

/// A golden file to be written to: the one there is, or a new one that names this libm. Files are of one
/// libm.
inline Json golden_to_write(const std::string& path) {
  if (!path_exists(path)) return Json{{"libm", libm_digests()}};
  Json golden = read_json_file(path);
  if (golden.at("libm") != libm_digests())
    throw std::runtime_error(path + " was frozen with another libm: remove it to freeze all of it here");
  return golden;
}

}  // namespace temper
