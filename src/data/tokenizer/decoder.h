#pragma once
// Decoders of tokenizer.json, in streaming form: ids go in one by one, text comes out as soon as it is
// certain. Decoding a list is the same machine run to its end, so streamed and whole texts are always equal.
// Supported: ByteLevel; Metaspace; sequences of Replace, ByteFallback, Fuse and Strip; none (tokens with
// blanks between them).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/tokenizer/json.h"

namespace temper {

class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(const JsonSection& section);

  /// What a token contributes, from its text in the vocabulary. A token of byte fallback is its one byte.
  struct Piece {
    std::string bytes;
    bool is_byte = false;  // part of a run of byte tokens
  };
  Piece piece(const std::string& token) const;

  /// Where a stream is.
  struct State {
    bool begun = false;     // a token came in
    std::string pending;    // bytes held back
    int64_t to_strip = -1;  // characters that Strip may still take at the beginning; -1: not begun
  };
  /// Text that `piece` makes certain.
  std::string push(State& state, const Piece& piece) const;
  std::string finish(State& state) const;

 private:
  enum class Kind { join, byte_level, metaspace, chain };
  void read(const JsonSection& section);
  void read_step(const JsonSection& section);
  std::string strip_front(State& state, std::string text) const;
  static std::string end_run(State& state);

  Kind kind_ = Kind::join;
  std::vector<std::pair<std::string, std::string>> replaces_;
  bool byte_fallback_ = false;
  bool fuse_ = false;
  std::string strip_content_;
  int64_t strip_start_ = 0;
  bool drop_first_prefix_ = false;  // Metaspace
};

/// Takes the certain part off `pending`: whole characters, and U+FFFD for what can no longer become one.
std::string take_text(std::string& pending, bool at_end);

}  // namespace temper
