#pragma once
// Files: bounded reads by pread (never mmap), whole-file atomic writes (write, fsync, rename, fsync folder).
// Regular files only: a pipe or a device in the place of one is refused, and never waited for.
// Every error carries path, offset, size and errno. A file to read that does not exist is Exit::usage; a read
// or write that fails, and a folder to write to that has vanished, is Exit::storage.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/check.h"

namespace temper {

/// Read-only file opened once; reads are positional, so any number of readers may share it.
class InputFile {
 public:
  /// `missing`: the code when there is no such file; Exit::storage for one that temper itself has written.
  explicit InputFile(const std::string& path, Exit missing = Exit::usage);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Reads exactly `bytes` bytes from `offset`; a short file is Exit::data (truncated).
  void read(void* destination, int64_t offset, int64_t bytes) const;
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

/// Append-only file written in order; `close` syncs and checks. Destroyed without close: left as it is. What
/// was written is synced piece by piece, in pieces that the disk takes some tenths of a second for: no single
/// sync of a large file lasts long, and each is progress (core/process/progress.h).
class OutputFile {
 public:
  enum class Mode { create_new, truncate, append };
  OutputFile(const std::string& path, Mode mode);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  void sync();
  void close();  // sync + close, both checked
  int64_t written() const { return written_; }

 private:
  void sync_piece();

  std::string path_;
  int descriptor_ = -1;
  int32_t sync_every_ = 1 << 18;  // bytes; follows the speed of the disk
  int64_t written_ = 0;
};

/// What cannot be looked at is not taken for absent: Exit::storage.
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
std::string read_file(const std::string& path, int64_t max_bytes);
/// Temp file in the same folder (removed when that fails), fsync, rename over `path`, fsync of the folder.
void write_file_atomic(const std::string& path, std::string_view content);
/// A name that files and folders of this program have until they are whole, and that a process which was
/// killed leaves: NAME.tmp.PID, NAME.tmp.PID-NUMBER, step-XXXXXX.tmp. Other names with "tmp" in them are
/// somebody else's.
bool is_temporary(const std::string& name);
void sync_directory(const std::string& path);
/// With its parents; each new folder is in its parent for good (fsync).
void make_directories(const std::string& path);
/// False when `to` exists and is not an empty folder: it stays as it is.
bool rename_folder(const std::string& from, const std::string& to);
void rename_path(const std::string& from, const std::string& to);
void remove_tree(const std::string& path);
/// Sorted names (not paths) in a folder.
std::vector<std::string> list_directory(const std::string& path);
std::string join_path(const std::string& folder, const std::string& name);
std::string step_name(int64_t step);  // "step-000010": files and folders of a step

}  // namespace temper
