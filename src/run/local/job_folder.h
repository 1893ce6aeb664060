#pragma once
// Folders for what the launcher and MPI of one job of `--local` keep on this host, removed when it ends.
// Those of jobs whose parent was killed are removed by the next one: nobody holds their lock.

#include <string>

namespace temper {

class JobFolder {
 public:
  /// Below TMPDIR or /tmp; below /dev/shm too, where it has room for the messages of so many ranks and the
  /// user has not named another folder for them.
  explicit JobFolder(int ranks);
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return own_.path; }
  /// Empty: there is none.
  const std::string& messages() const { return messages_.path; }

 private:
  struct Locked {
    std::string path;
    int lock = -1;
  };
  static Locked make(const std::string& below);
  static void remove(const Locked& folder);

  Locked own_, messages_;
};

/// Removes the folders below `folder` that a job of this user has left.
void remove_left_job_folders(const std::string& folder);

}  // namespace temper
