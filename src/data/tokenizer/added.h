#pragma once
// Added tokens (chat markers and the like): cut out of the text before anything else is done to it. Matching
// is leftmost-longest over all contents of a set; there are two sets, one matched against the raw text and
// one against the normalised text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/json.h"

namespace temper {

struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... after it
  bool normalized = false;   // matched against normalised text
  bool special = false;
};

/// Reads the array added_tokens of tokenizer.json; ids are checked by the caller.
std::vector<AddedToken> read_added_tokens(const JsonSection& section);
/// Reads a token of the other files, where everything but the content may be left out and an id is none.
AddedToken read_added_token(const JsonSection& item);
/// Refuses what is empty or too long.
void check_content(const JsonSection& place, const std::string& content);

/// A stretch of text: an added token (id >= 0) or text between them (id -1).
struct TextSegment {
  size_t begin;
  size_t end;
  int32_t id;
};

class AddedTokenSet {
 public:
  /// `pattern` is what to look for: the token's content, or its normalised form.
  void add(const AddedToken& token, std::string_view pattern);
  /// Stretches that cover the text (those between tokens are never empty).
  std::vector<TextSegment> split(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // byte, node
    int32_t token = -1;                                 // index into tokens_
  };
  int32_t longest_match(std::string_view text, size_t at, size_t* end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<bool> first_ = std::vector<bool>(256);
};

}  // namespace temper
