#pragma once
// Tokenizers of model folders: text to token ids and back, equal to Hugging Face `tokenizers` id for id.
//
//   text -> added tokens -> normalizer -> added tokens -> pre-tokenizer -> BPE -> (post-processor) -> ids
//
// Byte-level BPE (Qwen, Llama 3, DeepSeek, GPT-2) and SentencePiece-style BPE with byte fallback (Llama 2),
// read from tokenizer.json. A setting that is not supported is refused when the file is loaded, never
// ignored. A Tokenizer does not change after loading; any number of threads may use it at once.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/digest/file_digest.h"

namespace temper {

class Tokenizer {
 public:
  /// `folder` holds tokenizer.json and, optionally, tokenizer_config.json (names of special tokens, more
  /// added tokens) or, in older folders, special_tokens_map.json and added_tokens.json (see settings.h).
  /// Error: Exit::usage without a folder, Exit::data for what it lacks or has wrong.
  static Tokenizer load(const std::string& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Ids of `text`; strings of added tokens become those tokens. With `add_special`, what the post-processor
  /// template adds (BOS and the like). Text that is not UTF-8: Error(Exit::data) with the byte offset.
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;
  /// Text of `tokens`; bytes that form no character become U+FFFD. An id that names no token:
  /// Error(Exit::data).
  /// `skip_special` leaves out every special token; the reference keeps those whose text its normalizer
  /// changes.
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const;

  /// The files of the folder that were read, and what they held.
  const std::vector<FileDigest>& files() const;
  int32_t vocab_size() const;  // 1 + largest id
  bool is_special(int32_t id) const;
  std::optional<int32_t> token_id(std::string_view content) const;  // exact string, as written in the file
  std::string token_bytes(int32_t id) const;  // what the token stands for, perhaps not UTF-8
  std::optional<int32_t> eos_id() const;
  /// "bos_token", "eos_token", "pad_token", ...: their strings, for chat templates.
  std::optional<std::string> special_token(const std::string& name) const;
  const std::map<std::string, std::string>& special_tokens() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Decoding id by id: `push` returns the text that is now certain (whole characters), `finish` the rest, with
/// U+FFFD for incomplete ones. All of it together equals Tokenizer::decode of all ids. Outlived by the
/// tokenizer.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;

  std::string push(int32_t id);
  std::string finish();

 private:
  struct State;
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<State> state_;
};

}  // namespace temper
