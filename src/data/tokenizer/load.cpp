// Reading a tokenizer folder into Tokenizer::Parts.

#include <algorithm>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/download.h"
#include "src/data/tokenizer/parts.h"

namespace temper {
namespace {

const Json kNull = nullptr;

constexpr size_t kMaxTemplate = 1024;

/// A section of the top level; null if absent.
JsonSection section_of(const TokenizerFile& file, const std::string& path, const std::string& key) {
  return {file.tree.contains(key) ? file.tree.at(key) : kNull, path, key};
}

[[noreturn]] void refuse_size(const JsonSection& section, size_t size) {
  section.refuse(fmt::format("makes the template add {} tokens, the limit is {}", size, kMaxTemplate));
}

}  // namespace

Tokenizer::Parts::Parts(const std::string& folder, TokenizerFile file) {
  const std::string path = join_path(folder, "tokenizer.json");
  const JsonSection version = section_of(file, path, "version");
  if (!version.is_null() && version.text() != "1.0") version.refuse("is not 1.0");
  normalizer = Normalizer(section_of(file, path, "normalizer"));
  pre_tokenizer = PreTokenizer(section_of(file, path, "pre_tokenizer"));
  decoder = Decoder(section_of(file, path, "decoder"));
  bpe.emplace(section_of(file, path, "model"), file, pre_tokenizer.byte_level());
  for (const auto& [token, id] : bpe->vocab()) set_entry(id, token, false);
  const JsonSection listed = section_of(file, path, "added_tokens");
  if (!listed.is_null()) read_tokens(listed);
  const TokenSettings settings(folder);
  files = settings.files();
  special_strings = settings.names();
  check_prefix_space(settings);
  read_tokens(settings);
  install_tokens();
  const JsonSection post = section_of(file, path, "post_processor");
  if (!post.is_null()) read_post_processor(post);
}

void Tokenizer::Parts::set_entry(int32_t id, const std::string& token, bool special) {
  const auto index = static_cast<size_t>(id);
  if (index >= entries.size()) entries.resize(index + 1);
  entries[index] = {true, special, decoder.piece(token)};
}

/// The id that the reference gives to a token which is new to it: that of the vocabulary if the content is
/// there, else the next free one.
int32_t Tokenizer::Parts::next_id(const std::string& content) const {
  const auto in_vocab = bpe->vocab().find(content);
  if (in_vocab != bpe->vocab().end()) return in_vocab->second;
  return std::max(last_added_id + 1, static_cast<int32_t>(bpe->vocab().size()));
}

/// A token that is there already is matched from now on as `placed` says.
void Tokenizer::Parts::add_token(const PlacedToken& placed) {
  const std::string& content = placed.token.content;
  const auto there = added_ids.find(content);
  const bool fresh = there == added_ids.end();
  const int32_t id = fresh ? next_id(content) : there->second;
  if (placed.has_id && placed.token.id != id)
    placed.place.refuse(fmt::format("does not fit: \"{}\" {} and has to be {}", content.substr(0, 80),
                                    !fresh                           ? "is an added token already"
                                    : bpe->vocab().contains(content) ? "is in model.vocab"
                                                                     : "is the next new token",
                                    id));
  added_ids[content] = id;
  last_added_id = std::max(last_added_id, id);
  const auto known = added_places.emplace(content, added.size());
  if (known.second) {
    added.push_back(placed);
  } else {
    const bool special = added[known.first->second].token.special || placed.token.special;
    added[known.first->second] = placed;
    added[known.first->second].token.special = special;
  }
  added[known.first->second].token.id = id;
}

/// added_tokens of tokenizer.json.
void Tokenizer::Parts::read_tokens(const JsonSection& section) {
  const std::vector<JsonSection> items = section.items();
  const std::vector<AddedToken> tokens = read_added_tokens(section);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (added_ids.contains(tokens[i].content)) items[i].at("content").refuse("occurs twice");
    add_token({tokens[i], items[i].at("id")});
  }
}

/// What only the other files say.
void Tokenizer::Parts::read_tokens(const TokenSettings& settings) {
  for (const PlacedToken& placed : settings.numbered()) add_token(placed);
  const auto name = special_strings.find("eos_token");
  if (name != special_strings.end()) {
    eos = find(name->second);
    if (!eos)
      fail(Exit::data, {.what = "the end-of-sequence token is not in the vocabulary",
                        .where = settings.where("eos_token"),
                        .why = fmt::format("\"{}\" is neither in model.vocab nor among the added tokens",
                                           name->second.substr(0, 80)),
                        .fix = "give eos_token a token of this vocabulary"});
  }
  for (const PlacedToken& placed : settings.special())
    if (!added_ids.contains(placed.token.content)) add_token(placed);
}

void Tokenizer::Parts::install_tokens() {
  for (const auto& [token, place, unused] : added) {
    std::string buffer;
    const std::string pattern(token.normalized ? normalizer.apply(token.content, buffer) : token.content);
    if (pattern.empty()) place.refuse("names a token that is empty after normalisation");
    (token.normalized ? normalized_tokens : raw_tokens).add(token, pattern);
    set_entry(token.id, pattern, token.special);
  }
  added.clear();
  added_places.clear();
}

void Tokenizer::Parts::check_prefix_space(const TokenSettings& settings) const {
  const auto wanted = settings.add_prefix_space();
  const bool adds = pre_tokenizer.adds_prefix() || normalizer.prepends();
  if (wanted && *wanted != adds)
    settings.at("add_prefix_space")
        .refuse(fmt::format("contradicts tokenizer.json, which {} a blank before the text: make them agree",
                            adds ? "puts" : "does not put"));
}

void Tokenizer::Parts::read_post_processor(const JsonSection& section) {
  const std::string type = section.type();
  if (type == "ByteLevel") {
    section.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    read_template(section);
  } else if (type == "Sequence") {
    section.allow({"type", "processors"});
    for (const JsonSection& item : section.at("processors").items()) read_post_processor(item);
  } else {
    section.at("type").refuse("names a post-processor that is not supported");
  }
}

void Tokenizer::Parts::read_template(const JsonSection& section) {
  section.allow({"type", "single", "pair", "special_tokens"});
  std::vector<int32_t> before, after;
  bool text_seen = false;
  const JsonSection single = section.at("single");
  if (single.value().size() > kMaxTemplate) refuse_size(single, single.value().size());
  for (const JsonSection& item : single.items()) {
    item.allow({"SpecialToken", "Sequence"});
    if (item.has("Sequence")) {
      const JsonSection id = item.at("Sequence").at("id");
      if (id.text() != "A" || text_seen) id.refuse("is not the only sequence A of the template");
      text_seen = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id").text();
    const JsonSection ids = section.at("special_tokens").at(name).at("ids");
    const size_t size = before.size() + after.size() + ids.value().size();
    if (size > kMaxTemplate) refuse_size(ids, size);
    for (const JsonSection& id : ids.items()) {
      const int64_t value = id.integer();
      if (value < 0 || value >= std::ssize(entries) || !entries[static_cast<size_t>(value)].exists)
        id.refuse("names no token");
      (text_seen ? after : before).push_back(static_cast<int32_t>(value));
    }
  }
  if (!text_seen) single.refuse("has no sequence A");
  // Templates in a sequence of post-processors wrap what the earlier ones gave.
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
  if (prefix.size() + suffix.size() > kMaxTemplate) refuse_size(section, prefix.size() + suffix.size());
}

Tokenizer Tokenizer::load(const std::string& folder) {
  const std::string path = join_path(folder, "tokenizer.json");
  if (!path_exists(path)) {
    const std::string download = path_exists(folder) ? "" : model_download(folder);
    fail(path_exists(folder) ? Exit::data : Exit::usage,
         {.what = "no tokenizer here",
          .where = path,
          .why = is_directory(folder) ? "the folder has no tokenizer.json" : "no such folder",
          .fix = "name a Hugging Face folder with a tokenizer.json (for a run: tokenizer.path)" +
                 (download.empty() ? "" : "; " + download)});
  }
  FileDigest digest;
  auto parts = std::make_unique<Parts>(folder, read_tokenizer_file(path, digest));
  parts->files.push_back(digest);
  return Tokenizer(std::move(parts));
}

}  // namespace temper
