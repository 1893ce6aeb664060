#pragma once
// What a Tokenizer is made of, and how it is read. Private to the tokenizer: include tokenizer.h instead.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/data/tokenizer/added.h"
#include "src/data/tokenizer/bpe.h"
#include "src/data/tokenizer/decoder.h"
#include "src/data/tokenizer/normalizer.h"
#include "src/data/tokenizer/pretokenizer.h"
#include "src/data/tokenizer/settings.h"
#include "src/data/tokenizer/tokenizer.h"

namespace temper {

struct Tokenizer::Parts {
  /// One id of the vocabulary or of the added tokens.
  struct Entry {
    bool exists = false;
    bool special = false;
    Decoder::Piece piece;
  };
  struct Call;  // scratch of one encode

  Parts(const std::string& folder, TokenizerFile file);

  std::vector<FileDigest> files;  // it was read from

  Normalizer normalizer;
  AddedTokenSet raw_tokens;         // matched before normalisation
  AddedTokenSet normalized_tokens;  // ... and after
  PreTokenizer pre_tokenizer;
  std::optional<Bpe> bpe;
  Decoder decoder;
  std::vector<int32_t> prefix, suffix;  // of the post-processor template
  std::vector<Entry> entries;           // by id
  std::vector<PlacedToken> added;       // what the files say of added tokens, while they are read,
  std::unordered_map<std::string, size_t> added_places;  // and where there by content
  int32_t last_added_id = -1;
  std::unordered_map<std::string, int32_t> added_ids;
  std::map<std::string, std::string> special_strings;  // "eos_token" -> "<|im_end|>"
  std::optional<int32_t> eos;

  // Shared by calls that find it free; others use a cache of their own. Results never depend on it.
  mutable std::mutex cache_mutex;
  mutable WordCache cache;

  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  const Entry& entry(int32_t id) const;  // Error(Exit::data) if there is none
  std::optional<int32_t> find(std::string_view content) const;

 private:
  void encode_segment(std::string_view text, bool at_start, Call& call, std::vector<int32_t>& ids) const;
  void read_tokens(const JsonSection& section);
  void read_tokens(const TokenSettings& settings);
  void add_token(const PlacedToken& placed);
  int32_t next_id(const std::string& content) const;
  void install_tokens();
  void check_prefix_space(const TokenSettings& settings) const;
  void set_entry(int32_t id, const std::string& token, bool special);
  void read_post_processor(const JsonSection& section);
  void read_template(const JsonSection& section);
};

}  // namespace temper
