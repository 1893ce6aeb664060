#include "src/data/tokenizer/decoder.h"

#include "src/core/check.h"
#include "src/data/tokenizer/normalizer.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// The byte of "<0x0A>", or -1.
int parse_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_value(token[3]);
  const int low = hex_value(token[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

}  // namespace

std::string take_text(std::string& pending, bool at_end) {
  std::string text;
  size_t at = 0;
  while (at < pending.size()) {
    const Utf8Unit unit = utf8_unit(pending, at);
    if (unit.kind == Utf8Unit::Kind::truncated && !at_end) break;
    if (unit.kind == Utf8Unit::Kind::valid)
      text.append(pending, at, unit.bytes);
    else
      text.append(kReplacementCharacter);
    at += unit.bytes;
  }
  pending.erase(0, at);
  return text;
}

Decoder::Decoder(const JsonSection& section) {
  if (!section.is_null()) read(section);
}

void Decoder::read(const JsonSection& section) {
  const std::string type = section.type();
  if (type == "ByteLevel") {
    section.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    kind_ = Kind::byte_level;
    return;
  }
  if (type == "Metaspace") {
    section.allow({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    kind_ = Kind::metaspace;
    const std::string scheme = section.has("prepend_scheme") ? section.at("prepend_scheme").text() : "always";
    drop_first_prefix_ = scheme != "never" && section.flag("add_prefix_space", true);
    const std::string mark = section.at("replacement").text();
    if (mark.empty()) section.at("replacement").refuse("is empty");
    replaces_.emplace_back(mark, " ");
    return;
  }
  kind_ = Kind::chain;
  if (type != "Sequence") return read_step(section);
  section.allow({"type", "decoders"});
  const auto items = section.at("decoders").items();
  if (items.size() == 1 && (items[0].type() == "ByteLevel" || items[0].type() == "Metaspace"))
    return read(items[0]);
  for (const JsonSection& item : items) read_step(item);
}

/// Steps have to come in the order Replace, ByteFallback, Fuse, Strip: that is what `push` computes.
void Decoder::read_step(const JsonSection& section) {
  const std::string type = section.type();
  if (type == "Replace") {
    section.allow({"type", "pattern", "content"});
    if (byte_fallback_ || fuse_ || strip_start_ > 0)
      section.refuse("has to come before ByteFallback, Fuse, Strip");
    const JsonSection pattern = section.at("pattern");
    pattern.allow({"String"});
    replaces_.emplace_back(pattern.at("String").text(), section.at("content").text());
    if (replaces_.back().first.empty()) pattern.refuse("is empty");
  } else if (type == "ByteFallback") {
    section.allow({"type"});
    if (fuse_) section.refuse("has to come before Fuse");
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    section.allow({"type"});
    fuse_ = true;
  } else if (type == "Strip") {
    section.allow({"type", "content", "start", "stop"});
    if (!fuse_ || strip_start_ > 0) section.refuse("is supported once and behind Fuse only");
    strip_content_ = section.at("content").text();
    if (strip_content_.empty() || utf8_length(strip_content_[0]) != strip_content_.size())
      section.at("content").refuse("is not one character");
    strip_start_ = section.at("start").integer();
    if (strip_start_ < 0) section.at("start").refuse("is negative");
    if (section.at("stop").integer() != 0) section.at("stop").refuse("is not 0, which is not supported");
  } else {
    section.at("type").refuse("names a decoder that is not supported here");
  }
}

Decoder::Piece Decoder::piece(const std::string& token) const {
  if (kind_ == Kind::byte_level) return {alphabet_to_bytes(token).value_or(token), false};
  if (kind_ == Kind::metaspace || kind_ == Kind::join) return {token, false};
  std::string text = token;
  for (const auto& [pattern, content] : replaces_)
    text = replace_all(text, pattern, content, growth_limit(token.size()));
  const int byte = byte_fallback_ ? parse_byte_token(text) : -1;
  if (byte >= 0) return {std::string(1, static_cast<char>(byte)), true};
  return {std::move(text), false};
}

std::string Decoder::push(State& state, const Piece& piece) const {
  const bool first = !state.begun;
  state.begun = true;
  switch (kind_) {
    case Kind::join:
      return first ? piece.bytes : " " + piece.bytes;
    case Kind::metaspace:
      return replace_all(piece.bytes, replaces_[0].first, first && drop_first_prefix_ ? "" : " ",
                         growth_limit(piece.bytes.size()));
    case Kind::byte_level:
      state.pending += piece.bytes;
      return take_text(state.pending, false);
    case Kind::chain:
      break;
  }
  if (piece.is_byte) {
    state.pending += piece.bytes;
    return "";
  }
  return strip_front(state, end_run(state) + piece.bytes);
}

std::string Decoder::finish(State& state) const {
  if (kind_ == Kind::byte_level) return take_text(state.pending, true);
  if (kind_ == Kind::chain) return strip_front(state, end_run(state));
  return "";
}

/// A run of byte tokens is text if all of it is UTF-8, else one U+FFFD for each byte, as in the reference.
std::string Decoder::end_run(State& state) {
  std::string run = std::move(state.pending);
  state.pending.clear();
  if (!find_invalid_utf8(run)) return run;
  std::string text;
  for (size_t i = 0; i < run.size(); ++i) text += kReplacementCharacter;
  return text;
}

std::string Decoder::strip_front(State& state, std::string text) const {
  if (state.to_strip < 0) state.to_strip = strip_start_;
  size_t at = 0;
  while (state.to_strip > 0 && at < text.size()) {
    if (text.compare(at, strip_content_.size(), strip_content_) != 0) {
      state.to_strip = 0;
      break;
    }
    at += strip_content_.size();
    --state.to_strip;
  }
  return at == 0 ? text : text.substr(at);
}

}  // namespace temper
