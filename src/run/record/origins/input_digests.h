#pragma once
// What the inputs of a run held when they were read: data, config.json, tokenizer, template, the files of a
// replay. Files are known by the key of the config, or the option, that leads to them and a name of their own
// there, not by their path. They stand in the manifest of a checkpoint (text `inputs`; weights, which are
// read later, in texts of their own), so that a start sees that another content lies under a path, or the
// same one under another.

#include <map>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/config/changes.h"
#include "src/core/digest/file_digest.h"

namespace temper {

// Meta keys of a manifest.
inline constexpr const char* kInputs = "inputs";
inline constexpr const char* kOwnWeights = "own_weights";  // of models that roles have of their own
/// The option that names the files of a replay, as the key that leads to them.
inline constexpr const char* kReplay = "--replay";

class InputDigests {
 public:
  using Files = std::map<std::string, FileDigest>;  // by name

  void add(const std::string& key, const std::string& name, FileDigest file) {
    files_[key][name] = std::move(file);
  }
  /// Files that are known by their place in a list.
  void add_list(const std::string& key, const std::vector<FileDigest>& files);
  /// Leaves the first `count` files of a list.
  void keep_first(const std::string& key, int64_t count);
  /// Files of a folder, which are known by their file names.
  void add_folder(const std::string& key, const std::vector<FileDigest>& files);

  const std::map<std::string, Files>& files() const { return files_; }
  /// Empty where nothing of the key was read.
  const Files& of(const std::string& key) const;

  std::string text() const;
  /// Exit::data at `where` for what is no such text.
  static InputDigests from_text(const std::string& text, const std::string& where);

 private:
  std::map<std::string, Files> files_;  // by key
};

/// What all ranks have read together. Exit::data names two ranks that found different content in one file.
InputDigests agree_on_inputs(const InputDigests& mine, Comm& ranks);

/// Files of another content, or there on one side alone, of the keys that both sides have read.
std::vector<ConfigChange> changed_content(const InputDigests& before, const InputDigests& after);

/// Both sides have read the key, and all of its files are equal.
bool same_content(const InputDigests& before, const InputDigests& after, const std::string& key);
/// Both sides have read that file, and it is equal.
bool same_content(const InputDigests& before, const InputDigests& after, const std::string& key,
                  const std::string& name);

/// A file is read once more. Exit::data where it was not read for the key when the run began, or has another
/// content now.
void require_unchanged(const InputDigests& inputs, const std::string& key, const FileDigest& now);

/// Warns of files that an export takes out of `folder`, and that are not those which the run read in its
/// model folder.
void tell_what_changed(const InputDigests& inputs, const std::string& folder);

}  // namespace temper
