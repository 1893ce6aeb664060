#include "src/data/tokenizer/added.h"

#include <algorithm>
#include <limits>

#include "src/core/check.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr size_t kMaxContent = 1024;

/// From where on there is only white space before `at`, but not before `floor`.
size_t white_space_before(std::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    const size_t previous = last_char_offset(text.substr(0, at));
    if (!is_white_space(decode_char(text, previous))) break;
    at = previous;
  }
  return std::max(at, floor);
}

size_t white_space_after(std::string_view text, size_t at) {
  while (at < text.size() && is_white_space(decode_char(text, at))) at += utf8_length(text[at]);
  return at;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_char(decode_char(text, last_char_offset(text.substr(0, begin))))) return true;
  return end < text.size() && is_word_char(decode_char(text, end));
}

}  // namespace

void check_content(const JsonSection& place, const std::string& content) {
  if (content.empty()) place.refuse("is empty");
  if (content.size() > kMaxContent)
    place.refuse(fmt::format("has {} bytes, the limit is {}", content.size(), kMaxContent));
}

AddedToken read_added_token(const JsonSection& item) {
  item.allow({"__type", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token{.content = item.at("content").text()};
  check_content(item.at("content"), token.content);
  token.single_word = item.flag("single_word", false);
  token.lstrip = item.flag("lstrip", false);
  token.rstrip = item.flag("rstrip", false);
  token.special = item.flag("special", false);
  token.normalized = item.flag("normalized", !token.special);
  return token;
}

std::vector<AddedToken> read_added_tokens(const JsonSection& section) {
  std::vector<AddedToken> tokens;
  for (const JsonSection& item : section.items()) {
    item.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    const int64_t id = item.at("id").integer();
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) item.at("id").refuse("is out of range");
    token.id = static_cast<int32_t>(id);
    token.content = item.at("content").text();
    check_content(item.at("content"), token.content);
    token.single_word = item.flag("single_word", std::nullopt);
    token.lstrip = item.flag("lstrip", std::nullopt);
    token.rstrip = item.flag("rstrip", std::nullopt);
    token.normalized = item.flag("normalized", std::nullopt);
    token.special = item.flag("special", std::nullopt);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenSet::add(const AddedToken& token, std::string_view pattern) {
  CHECK(!pattern.empty(), "added token {} has no pattern", token.id);
  size_t node = 0;
  for (char c : pattern) {
    const auto byte = static_cast<uint8_t>(c);
    const auto& children = nodes_[node].children;
    const auto child =
        std::find_if(children.begin(), children.end(), [&](auto& x) { return x.first == byte; });
    if (child != children.end()) {
      node = static_cast<size_t>(child->second);
      continue;
    }
    nodes_[node].children.emplace_back(byte, static_cast<int32_t>(nodes_.size()));
    node = nodes_.size();
    nodes_.emplace_back();
  }
  first_[static_cast<uint8_t>(pattern[0])] = true;
  if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokenSet::longest_match(std::string_view text, size_t at, size_t* end) const {
  int32_t best = -1;
  size_t node = 0;
  for (size_t i = at; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto& children = nodes_[node].children;
    const auto child =
        std::find_if(children.begin(), children.end(), [&](auto& x) { return x.first == byte; });
    if (child == children.end()) break;
    node = static_cast<size_t>(child->second);
    ++i;
    if (nodes_[node].token < 0) continue;
    best = nodes_[node].token;
    *end = i;
  }
  return best;
}

std::vector<TextSegment> AddedTokenSet::split(std::string_view text) const {
  std::vector<TextSegment> segments;
  size_t done = 0;   // everything before is in a segment
  size_t blank = 0;  // white space behind a token was passed up to here
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t match_end = at;
    const int32_t index = first_[static_cast<uint8_t>(text[at])] ? longest_match(text, at, &match_end) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    size_t end = match_end;
    at = match_end;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) begin = white_space_before(text, begin, done);
    if (token.rstrip) end = blank = end < blank ? blank : white_space_after(text, end);
    if (done < begin) segments.push_back({done, begin, -1});
    segments.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({done, text.size(), -1});
  return segments;
}

}  // namespace temper
