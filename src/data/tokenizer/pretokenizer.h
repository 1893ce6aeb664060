#pragma once
// Pre-tokenizers of tokenizer.json: Split, ByteLevel, Digits, Metaspace and sequences of them. They cut a
// stretch of normalised text into the words that BPE encodes one by one. Words are spans of one text, which
// is rewritten only by the stages that put characters in (prefix blanks, Metaspace).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/json.h"
#include "src/data/tokenizer/regex.h"

namespace temper {

/// Words as spans of a text.
struct WordList {
  struct Span {
    size_t begin;
    size_t end;
  };
  std::string_view text;
  std::vector<Span> spans;
  std::string own;  // behind `text` once a stage rewrote it
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const JsonSection& section);

  /// True if words are to be encoded as bytes (a ByteLevel stage is present).
  bool byte_level() const { return byte_level_; }
  /// True if a blank, or what stands for one, is put before words.
  bool adds_prefix() const;
  /// `at_start`: `text` begins where the whole input does.
  void split(std::string_view text, bool at_start, WordList& words) const;

 private:
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  enum class Prefix { never, first, always };
  struct Stage {
    std::optional<Regex> regex;  // split by regex
    std::string literal;         // split by literal; else, the text of the prefix
    Behavior behavior = Behavior::isolated;
    bool invert = false;
    bool rewrite = false;  // not a split: put `literal` before words
    Prefix prefix = Prefix::never;
    bool replace_blanks = false;  // ... and in place of every blank
  };
  struct Part;

  void read(const JsonSection& section);
  void read_split(const JsonSection& section);
  void read_byte_level(const JsonSection& section);
  void read_metaspace(const JsonSection& section);
  static void find_parts(const Stage& stage, std::string_view piece, RegexMatcher* matcher,
                         std::vector<Part>& parts);
  static std::vector<Part> join_parts(Behavior behavior, std::vector<Part> parts);
  static void split_stage(const Stage& stage, WordList& words);
  static void rewrite_stage(const Stage& stage, bool at_start, WordList& words);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace temper
