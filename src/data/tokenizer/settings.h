#pragma once
// What the files beside tokenizer.json say about tokens: tokenizer_config.json, and in older folders
// special_tokens_map.json and added_tokens.json. Which of them counts, and in which order what they add gets
// its ids, is as in transformers.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/core/digest/file_digest.h"
#include "src/data/tokenizer/added.h"

namespace temper {

/// A token that a file has, and where.
struct PlacedToken {
  AddedToken token;
  JsonSection place;
  bool has_id = true;  // the file says its id
};

class TokenSettings {
 public:
  /// Error(Exit::data) for what cannot be read or is not supported, by name.
  explicit TokenSettings(const std::string& folder);
  TokenSettings(const TokenSettings&) = delete;
  TokenSettings& operator=(const TokenSettings&) = delete;

  /// "eos_token" -> "<|im_end|>", and every other token that has a name.
  const std::map<std::string, std::string>& names() const { return names_; }
  /// Tokens with ids, ascending: they say how a token is matched, whatever tokenizer.json says.
  const std::vector<PlacedToken>& numbered() const { return numbered_; }
  /// Special tokens that become added tokens if they are none yet, in order.
  const std::vector<PlacedToken>& special() const { return special_; }
  /// The files that were read, and what they held.
  const std::vector<FileDigest>& files() const { return files_; }
  /// The setting add_prefix_space, if the file has it.
  std::optional<bool> add_prefix_space() const;
  /// The file and key that give a token its name.
  std::string where(const std::string& name) const;
  JsonSection at(const std::string& key) const { return section(config_, config_path_).at(key); }

 private:
  JsonSection section(const Json& file, const std::string& path) const { return {file, path, ""}; }
  Json read_settings(const std::string& path);
  void read_numbered();
  void read_legacy_numbered();
  void read_named();
  void read_extra();
  void add_named(const std::string& name, const JsonSection& place);

  std::vector<FileDigest> files_;
  std::string config_path_, map_path_, added_path_;
  Json config_, map_, added_;  // of a file that is not there or does not count: an empty object
  std::map<std::string, std::string> names_;
  std::vector<PlacedToken> numbered_, special_;
};

}  // namespace temper
