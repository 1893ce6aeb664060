#pragma once
// What a start takes out of the way of a run and must not destroy: moved to `set-aside-N` in the run folder,
// under the same names, so that it can be resumed, exported and read there.

#include <string>

namespace temper {

class SetAside {
 public:
  explicit SetAside(std::string run_folder) : root_(std::move(run_folder)) {}

  /// Moves a file or folder of the run folder, named from there; nothing where there is none.
  void move(const std::string& name);
  /// Where it went; empty: nothing was moved.
  const std::string& folder() const { return folder_; }

 private:
  std::string root_, folder_;
};

}  // namespace temper
