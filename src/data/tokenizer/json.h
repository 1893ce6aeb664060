#pragma once
// Reading of tokenizer.json. The vocabulary and the merges (hundreds of thousands of entries) go into flat
// lists while parsing; the rest becomes a Json tree. JsonSection is a view of one value that knows its path,
// so that every refusal names it ("pre_tokenizer.pretokenizers[1].behavior").

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/core/digest/file_digest.h"
#include "src/core/json.h"

namespace temper {

struct TokenizerFile {
  Json tree;  // without model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
};

/// Reads `path`, and says what it held; anything that is not strict JSON or not of the expected form is
/// Error(Exit::data).
TokenizerFile read_tokenizer_file(const std::string& path, FileDigest& digest);
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& path);

class JsonSection {
 public:
  JsonSection(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  /// True if the key is there and not null.
  bool has(const std::string& key) const;

  JsonSection at(const std::string& key) const;
  std::vector<JsonSection> items() const;                            // elements of an array
  std::vector<std::pair<std::string, JsonSection>> members() const;  // of an object
  std::string type() const { return at("type").text(); }
  std::string text() const;
  bool flag(const std::string& key, std::optional<bool> otherwise) const;
  int64_t integer() const;

  /// Refuses every key that is not listed: a setting that is not understood would silently change ids.
  void allow(std::initializer_list<std::string_view> keys) const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace temper
