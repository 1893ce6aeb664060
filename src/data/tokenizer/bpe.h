#pragma once
// Byte pair encoding of single words: vocabulary, ranked merges, and the cache of words seen.
// A word is split into characters (byte-level: bytes), then the adjacent pair of the lowest rank is merged,
// the leftmost first, until none is left. A heap with stale entries keeps a word of n characters at n log n.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/data/tokenizer/json.h"

namespace temper {

/// Bounded map from words to their ids; what does not fit is simply not kept.
class WordCache {
 public:
  /// Ids of `word` if it was seen. The span lives until the next insert.
  std::optional<std::span<const int32_t>> find(std::string_view word) const;
  void insert(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;           // offsets into text_ and ids_
    uint32_t num_bytes = 0, num_ids = 0;  // num_bytes 0: free
  };
  size_t slot_of(uint64_t hash, std::string_view word) const;
  void grow();

  std::vector<Slot> slots_;
  size_t num_words_ = 0;
  std::string text_;
  std::vector<int32_t> ids_;
};

/// Working memory of one call of Bpe::encode.
struct BpeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none
    bool alive;
  };
  struct Merge {
    uint32_t rank;
    int32_t at;  // left symbol
    int32_t id;  // token after the merge
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> heap;
  std::vector<int32_t> ids;
};

class Bpe {
 public:
  /// `model`: the section without vocab and merges, which `file` holds. `byte_level`: words come as raw bytes
  /// and the vocabulary is written in the byte alphabet.
  Bpe(const JsonSection& model, TokenizerFile& file, bool byte_level);

  /// Appends the ids of `word` (not empty, valid UTF-8). Characters outside the vocabulary become byte tokens
  /// or unk_token where the model has them and are dropped otherwise, as the reference does.
  void encode(std::string_view word, WordCache& cache, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  const std::unordered_map<std::string, int32_t>& vocab() const { return vocab_; }

 private:
  struct PairSlot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
    int32_t id = 0;
  };

  void read_vocab(const JsonSection& model, TokenizerFile& file);
  void read_merges(const JsonSection& model, TokenizerFile& file);
  void prepare_bytes();
  const PairSlot* find_pair(int32_t left, int32_t right) const;
  void insert_pair(int32_t left, int32_t right, uint32_t rank, int32_t id);
  int32_t find_word(std::string_view word) const;  // -1: not in the vocabulary

  void split_symbols(std::string_view word, BpeScratch& scratch) const;
  void push_merge(BpeScratch& scratch, int32_t left, int32_t right) const;
  void merge_all(BpeScratch& scratch) const;

  std::unordered_map<std::string, int32_t> vocab_;  // as written in the file
  std::unordered_map<std::string, int32_t> words_;  // byte-level with ignore_merges: raw bytes
  std::vector<PairSlot> pairs_;
  size_t pair_mask_ = 0;
  std::array<int32_t, 256> single_;    // byte-level: id of each byte, else of each ASCII character; -1: none
  std::vector<std::string> alphabet_;  // byte-level: each byte as written in the vocabulary
  int32_t unk_ = -1;
  bool byte_level_ = false;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

/// Spelling of a byte in vocabularies with byte fallback: "<0x0A>".
std::string byte_token(uint8_t byte);

}  // namespace temper
