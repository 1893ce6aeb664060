#include "src/data/tokenizer/pretokenizer.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/data/tokenizer/normalizer.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

/// A match or the gap between two.
struct PreTokenizer::Part {
  size_t begin;
  size_t end;
  bool match;
};

PreTokenizer::PreTokenizer(const JsonSection& section) {
  if (!section.is_null()) read(section);
}

void PreTokenizer::read(const JsonSection& section) {
  const std::string type = section.type();
  if (byte_level_) section.refuse("comes after ByteLevel, which has to be the last");
  if (type == "Sequence") {
    section.allow({"type", "pretokenizers"});
    for (const JsonSection& item : section.at("pretokenizers").items()) read(item);
  } else if (type == "Split") {
    read_split(section);
  } else if (type == "ByteLevel") {
    read_byte_level(section);
  } else if (type == "Metaspace") {
    read_metaspace(section);
  } else if (type == "Digits") {
    section.allow({"type", "individual_digits"});
    Stage stage;
    stage.regex.emplace("\\p{N}", section);
    stage.behavior = section.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous;
    stages_.push_back(std::move(stage));
  } else {
    section.at("type").refuse("names a pre-tokenizer that is not supported");
  }
}

void PreTokenizer::read_split(const JsonSection& section) {
  section.allow({"type", "pattern", "behavior", "invert"});
  Stage stage;
  const JsonSection pattern = section.at("pattern");
  pattern.allow({"String", "Regex"});
  if (pattern.value().size() != 1) pattern.refuse("is neither one String nor one Regex");
  if (pattern.has("Regex")) {
    stage.regex.emplace(pattern.at("Regex").text(), pattern.at("Regex"));
  } else {
    stage.literal = pattern.at("String").text();
    if (stage.literal.empty()) pattern.at("String").refuse("is empty");
  }
  const std::string behavior = section.at("behavior").text();
  if (behavior == "Isolated") {
    stage.behavior = Behavior::isolated;
  } else if (behavior == "Removed") {
    stage.behavior = Behavior::removed;
  } else if (behavior == "MergedWithPrevious") {
    stage.behavior = Behavior::merged_with_previous;
  } else if (behavior == "MergedWithNext") {
    stage.behavior = Behavior::merged_with_next;
  } else if (behavior == "Contiguous") {
    stage.behavior = Behavior::contiguous;
  } else {
    section.at("behavior")
        .refuse("is none of Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
  }
  stage.invert = section.flag("invert", std::nullopt);
  stages_.push_back(std::move(stage));
}

void PreTokenizer::read_byte_level(const JsonSection& section) {
  section.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  byte_level_ = true;
  if (section.flag("add_prefix_space", std::nullopt)) {
    Stage stage;
    stage.rewrite = true;
    stage.literal = " ";
    stage.prefix = Prefix::always;
    stages_.push_back(std::move(stage));
  }
  if (!section.flag("use_regex", true)) return;
  Stage stage;
  stage.regex.emplace(kGpt2Pattern, section);
  stages_.push_back(std::move(stage));
}

void PreTokenizer::read_metaspace(const JsonSection& section) {
  section.allow({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  if (!stages_.empty()) section.refuse("comes after another pre-tokenizer; Metaspace has to be the first");
  Stage stage;
  stage.rewrite = true;
  stage.replace_blanks = true;
  stage.literal = section.at("replacement").text();
  if (stage.literal.empty() || utf8_length(stage.literal[0]) != stage.literal.size())
    section.at("replacement").refuse("is not one character");
  const std::string scheme = section.has("prepend_scheme") ? section.at("prepend_scheme").text() : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never")
    section.at("prepend_scheme").refuse("is none of always, first, never");
  const bool never = scheme == "never" || !section.flag("add_prefix_space", true);
  if (never && scheme == "first") section.at("add_prefix_space").refuse("contradicts prepend_scheme");
  stage.prefix = never ? Prefix::never : scheme == "first" ? Prefix::first : Prefix::always;
  Stage cut;
  cut.literal = stage.literal;
  cut.behavior = Behavior::merged_with_next;
  stages_.push_back(std::move(stage));
  if (section.flag("split", true)) stages_.push_back(std::move(cut));
}

bool PreTokenizer::adds_prefix() const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [](const Stage& stage) { return stage.rewrite && stage.prefix != Prefix::never; });
}

void PreTokenizer::split(std::string_view text, bool at_start, WordList& words) const {
  words.text = text;
  words.spans.clear();
  if (!text.empty()) words.spans.push_back({0, text.size()});
  for (const Stage& stage : stages_) {
    if (stage.rewrite)
      rewrite_stage(stage, at_start, words);
    else
      split_stage(stage, words);
  }
}

void PreTokenizer::rewrite_stage(const Stage& stage, bool at_start, WordList& words) {
  std::string out;
  out.reserve(words.text.size() + words.text.size() / 8 + 16);
  for (auto& span : words.spans) {
    std::string_view word = words.text.substr(span.begin, span.end - span.begin);
    std::string replaced;
    if (stage.replace_blanks)
      word = replaced = replace_all(word, " ", stage.literal, growth_limit(word.size()));
    const size_t begin = out.size();
    const bool wanted =
        stage.prefix == Prefix::always || (stage.prefix == Prefix::first && at_start && span.begin == 0);
    if (wanted && !word.starts_with(stage.literal)) out += stage.literal;
    out += word;
    span = {begin, out.size()};
  }
  words.own = std::move(out);
  words.text = words.own;
}

/// Matches and gaps of one piece, in order; they cover it.
void PreTokenizer::find_parts(const Stage& stage, std::string_view piece, RegexMatcher* matcher,
                              std::vector<Part>& parts) {
  parts.clear();
  size_t done = 0;
  auto add = [&](size_t begin, size_t end) {
    if (done != begin) parts.push_back({done, begin, stage.invert});
    parts.push_back({begin, end, !stage.invert});
    done = end;
  };
  if (!matcher) {
    for (size_t at; (at = piece.find(stage.literal, done)) != piece.npos;) add(at, at + stage.literal.size());
  } else {
    std::optional<size_t> last_end;
    size_t begin = 0;
    size_t end = 0;
    for (size_t from = 0; from <= piece.size() && matcher->find(piece, from, &begin, &end);) {
      from = end;
      if (begin != end || end != last_end) {
        add(begin, end);
        last_end = end;
      } else {  // an empty match right behind the last match does not count
        from += end < piece.size() ? utf8_length(piece[end]) : 1;
      }
    }
  }
  if (done != piece.size()) parts.push_back({done, piece.size(), stage.invert});
}

std::vector<PreTokenizer::Part> PreTokenizer::join_parts(Behavior behavior, std::vector<Part> parts) {
  const bool backwards = behavior == Behavior::merged_with_next;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Part> kept;
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins = behavior == Behavior::contiguous ? part.match == previous : part.match && !previous;
    previous = part.match;
    if (behavior == Behavior::removed) {
      if (!part.match) kept.push_back(part);
    } else if (!joins || kept.empty()) {
      kept.push_back(part);
    } else if (backwards) {
      kept.back().begin = part.begin;
    } else {
      kept.back().end = part.end;
    }
  }
  if (backwards) std::reverse(kept.begin(), kept.end());
  return kept;
}

void PreTokenizer::split_stage(const Stage& stage, WordList& words) {
  std::string buffer;
  const std::string_view subject = stage.regex ? alias_text(words.text, buffer) : words.text;
  std::optional<RegexMatcher> matcher;
  if (stage.regex) matcher.emplace(*stage.regex);
  std::vector<WordList::Span> spans;
  std::vector<Part> parts;
  for (const auto& word : words.spans) {
    const std::string_view piece = subject.substr(word.begin, word.end - word.begin);
    find_parts(stage, piece, matcher ? &*matcher : nullptr, parts);
    if (stage.behavior != Behavior::isolated) parts = join_parts(stage.behavior, std::move(parts));
    for (const Part& part : parts)
      if (part.begin != part.end) spans.push_back({word.begin + part.begin, word.begin + part.end});
  }
  words.spans = std::move(spans);
}

}  // namespace temper
