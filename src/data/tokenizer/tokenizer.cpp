#include "src/data/tokenizer/tokenizer.h"

#include <limits>

#include "src/core/check.h"
#include "src/data/tokenizer/parts.h"
#include "src/data/tokenizer/text.h"

namespace temper {

struct Tokenizer::Parts::Call {
  WordCache own_cache;
  WordCache* cache = &own_cache;
  BpeScratch bpe;
  WordList words;
  std::string normalized;
};

void Tokenizer::Parts::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Call call;
  const std::unique_lock lock(cache_mutex, std::try_to_lock);
  if (lock.owns_lock()) call.cache = &cache;
  for (const TextSegment& segment : raw_tokens.split(text)) {
    if (segment.id >= 0)
      ids.push_back(segment.id);
    else
      encode_segment(text.substr(segment.begin, segment.end - segment.begin), segment.begin == 0, call, ids);
  }
}

void Tokenizer::Parts::encode_segment(std::string_view text, bool at_start, Call& call,
                                      std::vector<int32_t>& ids) const {
  const std::string_view normalized = normalizer.apply(text, call.normalized);
  for (const TextSegment& segment : normalized_tokens.split(normalized)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view stretch = normalized.substr(segment.begin, segment.end - segment.begin);
    pre_tokenizer.split(stretch, at_start && segment.begin == 0, call.words);
    for (const auto& span : call.words.spans)
      bpe->encode(call.words.text.substr(span.begin, span.end - span.begin), *call.cache, call.bpe, ids);
  }
}

const Tokenizer::Parts::Entry& Tokenizer::Parts::entry(int32_t id) const {
  if (id < 0 || id >= std::ssize(entries) || !entries[static_cast<size_t>(id)].exists)
    fail(Exit::data, {.what = "a token id names no token",
                      .where = fmt::format("token id {}", id),
                      .why = fmt::format("the vocabulary has the ids 0 to {} ({} with gaps counted)",
                                         std::ssize(entries) - 1, entries.size()),
                      .fix = "use ids that this tokenizer made"});
  return entries[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::Parts::find(std::string_view content) const {
  const std::string key(content);
  if (const auto found = added_ids.find(key); found != added_ids.end()) return found->second;
  if (const auto known = bpe->vocab().find(key); known != bpe->vocab().end()) return known->second;
  return std::nullopt;
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (text.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail(Exit::data,
         {.what = "a text is too long to tokenize",
          .where = fmt::format("a text of {} bytes", text.size()),
          .why = fmt::format("{} bytes, the limit is {}", text.size(), std::numeric_limits<int32_t>::max()),
          .fix = "split the text"});
  if (const auto offset = find_invalid_utf8(text))
    fail(Exit::data, {.what = "a text to tokenize is not UTF-8",
                      .where = fmt::format("byte {} of {}", *offset, text.size()),
                      .why = fmt::format("the byte 0x{:02X} there begins no character",
                                         static_cast<uint8_t>(text[*offset])),
                      .fix = "convert the text to UTF-8"});
  std::vector<int32_t> ids;
  if (add_special) ids = parts_->prefix;
  parts_->encode(text, ids);
  if (add_special) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string text;
  for (int32_t id : tokens) text += stream.push(id);
  return text + stream.finish();
}

const std::vector<FileDigest>& Tokenizer::files() const { return parts_->files; }

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->entries.size()); }

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->entries[static_cast<size_t>(id)].special;
}

std::optional<int32_t> Tokenizer::token_id(std::string_view content) const { return parts_->find(content); }

std::string Tokenizer::token_bytes(int32_t id) const { return parts_->entry(id).piece.bytes; }

std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos; }

std::optional<std::string> Tokenizer::special_token(const std::string& name) const {
  const auto found = parts_->special_strings.find(name);
  if (found == parts_->special_strings.end()) return std::nullopt;
  return found->second;
}

const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  return parts_->special_strings;
}

struct StreamDecoder::State : Decoder::State {};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), state_(std::make_unique<State>()) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  const auto& entry = tokenizer_->parts_->entry(id);
  if (skip_special_ && entry.special) return "";
  return tokenizer_->parts_->decoder.push(*state_, entry.piece);
}

std::string StreamDecoder::finish() { return tokenizer_->parts_->decoder.finish(*state_); }

}  // namespace temper
