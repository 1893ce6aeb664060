#include "src/data/tokenizer/bpe.h"

#include <xxhash.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr int64_t kMaxId = int64_t{1} << 22;
constexpr size_t kMaxCachedBytes = 64;
constexpr size_t kMaxCachedWords = size_t{1} << 17;

bool later(const BpeScratch::Merge& a, const BpeScratch::Merge& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

size_t mix(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(key ^ (key >> 32));
}

}  // namespace

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

size_t WordCache::slot_of(uint64_t hash, std::string_view word) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i].num_bytes != 0; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.hash == hash && std::string_view(text_).substr(slot.text, slot.num_bytes) == word) break;
  }
  return i;
}

std::optional<std::span<const int32_t>> WordCache::find(std::string_view word) const {
  if (slots_.empty() || word.size() > kMaxCachedBytes) return std::nullopt;
  const Slot& slot = slots_[slot_of(XXH3_64bits(word.data(), word.size()), word)];
  if (slot.num_bytes == 0) return std::nullopt;
  return std::span<const int32_t>(ids_).subspan(slot.ids, slot.num_ids);
}

void WordCache::insert(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kMaxCachedBytes || num_words_ >= kMaxCachedWords) return;
  if (2 * (num_words_ + 1) > slots_.size()) grow();
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  Slot& slot = slots_[slot_of(hash, word)];
  if (slot.num_bytes != 0) return;
  slot = {hash, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(ids_.size()),
          static_cast<uint32_t>(word.size()), static_cast<uint32_t>(ids.size())};
  text_.append(word);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++num_words_;
}

void WordCache::grow() {
  std::vector<Slot> old(std::max<size_t>(1024, 2 * slots_.size()));
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.num_bytes != 0)
      slots_[slot_of(slot.hash, std::string_view(text_).substr(slot.text, slot.num_bytes))] = slot;
}

Bpe::Bpe(const JsonSection& model, TokenizerFile& file, bool byte_level) : byte_level_(byte_level) {
  if (model.type() != "BPE") model.at("type").refuse("names a model that is not supported; only BPE is");
  model.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout")) {
    const JsonSection dropout = model.at("dropout");
    if (!dropout.value().is_number() || dropout.value().get<double>() != 0.0)
      dropout.refuse("makes ids random, which is not supported");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key) && !model.at(key).text().empty()) model.at(key).refuse("is not supported");
  fuse_unk_ = model.flag("fuse_unk", false);
  byte_fallback_ = model.flag("byte_fallback", false);
  ignore_merges_ = model.flag("ignore_merges", false);
  read_vocab(model, file);
  read_merges(model, file);
  prepare_bytes();
  if (!model.has("unk_token")) return;
  unk_ = find_word(model.at("unk_token").text());
  const bool complete = byte_level_ && std::find(single_.begin(), single_.end(), -1) == single_.end();
  if (unk_ < 0 && !complete) model.at("unk_token").refuse("is not in the vocabulary");
}

void Bpe::read_vocab(const JsonSection& model, TokenizerFile& file) {
  if (!model.at("vocab").value().is_object()) model.at("vocab").refuse("is not an object of token: id");
  if (file.vocab.empty()) model.at("vocab").refuse("has no tokens");
  vocab_.reserve(file.vocab.size());
  std::vector<bool> used;
  for (auto& [token, id] : file.vocab) {
    if (token.empty()) model.at("vocab").refuse("has an empty token");
    if (id < 0 || id >= kMaxId)
      model.at("vocab").refuse(
          fmt::format("gives \"{}\" the id {}, the limit is {}", token.substr(0, 80), id, kMaxId));
    const auto index = static_cast<size_t>(id);
    if (index >= used.size()) used.resize(std::max(index + 1, 2 * used.size()));
    if (used[index]) model.at("vocab").refuse(fmt::format("has the id {} twice", id));
    used[index] = true;
    if (!vocab_.emplace(std::move(token), static_cast<int32_t>(id)).second)
      model.at("vocab").refuse(fmt::format("has the token of id {} twice", id));
  }
  file.vocab = {};
}

void Bpe::read_merges(const JsonSection& model, TokenizerFile& file) {
  if (!model.at("merges").value().is_array()) model.at("merges").refuse("is not an array");
  size_t slots = 16;
  while (slots < 2 * file.merges.size() + 1) slots *= 2;
  pairs_.resize(slots);
  pair_mask_ = slots - 1;
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const int32_t ids[] = {find_word(left), find_word(right), find_word(left + right)};
    for (int i = 0; i < 3; ++i)
      if (ids[i] < 0)
        model.at("merges").refuse(fmt::format("[{}] needs the token \"{}\", which is not in the vocabulary",
                                              rank,
                                              (i == 0   ? left
                                               : i == 1 ? right
                                                        : left + right)
                                                  .substr(0, 80)));
    insert_pair(ids[0], ids[1], static_cast<uint32_t>(rank), ids[2]);
  }
  file.merges = {};
}

void Bpe::prepare_bytes() {
  single_.fill(-1);
  if (!byte_level_) {
    for (int c = 0; c < 128; ++c)
      single_[static_cast<size_t>(c)] = find_word(std::string(1, static_cast<char>(c)));
    return;
  }
  for (int byte = 0; byte < 256; ++byte) {
    alphabet_.push_back(byte_to_alphabet(static_cast<uint8_t>(byte)));
    single_[static_cast<size_t>(byte)] = find_word(alphabet_.back());
  }
  if (!ignore_merges_) return;
  for (const auto& [token, id] : vocab_)
    if (auto bytes = alphabet_to_bytes(token)) words_.emplace(std::move(*bytes), id);
}

int32_t Bpe::find_word(std::string_view word) const {
  const auto found = vocab_.find(std::string(word));
  return found == vocab_.end() ? -1 : found->second;
}

const Bpe::PairSlot* Bpe::find_pair(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  for (size_t i = mix(pair) & pair_mask_;; i = (i + 1) & pair_mask_) {
    if (pairs_[i].pair == pair) return &pairs_[i];
    if (pairs_[i].pair == UINT64_MAX) return nullptr;
  }
}

void Bpe::insert_pair(int32_t left, int32_t right, uint32_t rank, int32_t id) {
  const uint64_t pair = pair_key(left, right);
  size_t i = mix(pair) & pair_mask_;
  while (pairs_[i].pair != UINT64_MAX && pairs_[i].pair != pair) i = (i + 1) & pair_mask_;
  pairs_[i] = {pair, rank, id};
}

void Bpe::encode(std::string_view word, WordCache& cache, BpeScratch& scratch,
                 std::vector<int32_t>& ids) const {
  if (const auto seen = cache.find(word)) {
    ids.insert(ids.end(), seen->begin(), seen->end());
    return;
  }
  scratch.ids.clear();
  if (ignore_merges_) {
    const auto& whole = byte_level_ ? words_ : vocab_;
    const auto found = whole.find(std::string(word));
    if (found != whole.end()) scratch.ids.push_back(found->second);
  }
  if (scratch.ids.empty()) {
    split_symbols(word, scratch);
    merge_all(scratch);
    for (const auto& symbol : scratch.symbols)
      if (symbol.alive) scratch.ids.push_back(symbol.id);
  }
  cache.insert(word, scratch.ids);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::split_symbols(std::string_view word, BpeScratch& scratch) const {
  scratch.symbols.clear();
  auto add = [&](int32_t id) {
    const auto at = static_cast<int32_t>(scratch.symbols.size());
    scratch.symbols.push_back({id, at - 1, at + 1, true});
  };
  bool unknown =
      false;  // an unk_token waits: fused with the next one, or behind byte tokens as in the reference
  for (size_t at = 0; at < word.size();) {
    const size_t length = byte_level_ ? 1 : utf8_length(word[at]);
    const auto lead = static_cast<uint8_t>(word[at]);
    const int32_t id = length == 1 ? single_[lead] : find_word(word.substr(at, length));
    const std::string_view unit = byte_level_ ? std::string_view(alphabet_[lead]) : word.substr(at, length);
    at += length;
    if (id >= 0) {
      if (unknown) add(unk_);
      unknown = false;
      add(id);
      continue;
    }
    if (byte_fallback_) {
      std::vector<int32_t> bytes;
      for (char c : unit) bytes.push_back(find_word(byte_token(static_cast<uint8_t>(c))));
      if (std::find(bytes.begin(), bytes.end(), -1) == bytes.end()) {
        for (int32_t byte : bytes) add(byte);
        continue;
      }
    }
    if (unk_ < 0) continue;
    if (unknown && !fuse_unk_) add(unk_);
    unknown = true;
  }
  if (unknown) add(unk_);
  if (!scratch.symbols.empty()) scratch.symbols.back().next = -1;
}

void Bpe::push_merge(BpeScratch& scratch, int32_t left, int32_t right) const {
  const auto& symbols = scratch.symbols;
  const PairSlot* pair =
      find_pair(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
  if (pair) scratch.heap.push_back({pair->rank, left, pair->id});
}

void Bpe::merge_all(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  for (size_t i = 1; i < symbols.size(); ++i)
    push_merge(scratch, static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Merge top = heap.back();
    heap.pop_back();
    auto& left = symbols[static_cast<size_t>(top.at)];
    if (!left.alive || left.next < 0) continue;
    auto& right = symbols[static_cast<size_t>(left.next)];
    const PairSlot* pair = find_pair(left.id, right.id);
    if (!pair || pair->id != top.id) continue;  // stale: the pair at this place has changed
    left.id = top.id;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.at;
    const size_t before = heap.size();
    if (left.previous >= 0) push_merge(scratch, left.previous, top.at);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    const size_t between = heap.size();
    if (left.next >= 0) push_merge(scratch, top.at, left.next);
    if (heap.size() > between) std::push_heap(heap.begin(), heap.end(), later);
  }
}

}  // namespace temper
