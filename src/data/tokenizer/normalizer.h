#pragma once
// Normalizers of tokenizer.json: NFC, Prepend, Replace (literal pattern) and sequences of them.
// NFC is that of the reference's Unicode tables: newer characters (is_inert) pass through unchanged. Its cost
// is n log n for any text; runs of combining marks are sorted here because utf8proc sorts them in n^2.

#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/json.h"

namespace temper {

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const JsonSection& section);

  /// True if something is put before a text.
  bool prepends() const;
  /// The normalised text: `text` itself if nothing changes, else `buffer`. Error(Exit::data) where it grows
  /// beyond growth_limit.
  std::string_view apply(std::string_view text, std::string& buffer) const;

 private:
  struct Step {
    enum class Kind { nfc, prepend, replace } kind;
    std::string pattern;  // replace
    std::string content;  // prepend, replace
  };
  void read(const JsonSection& section);
  std::vector<Step> steps_;
};

/// Canonical composition; returns `text` itself where no character of it can change.
std::string_view nfc(std::string_view text, std::string& buffer);
/// What replacements may make of a text of so many bytes. Steps that feed each other double it as often as
/// they are written; no tokenizer in use comes near: a blank becomes three bytes.
constexpr size_t growth_limit(size_t bytes) { return 16 * bytes + 1024; }
/// Error(Exit::data) before the result is longer than `limit`.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content,
                        size_t limit);

}  // namespace temper
