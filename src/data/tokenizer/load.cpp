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
  const JsonSection added = section_of(file, path, "added_tokens");
  if (!added.is_null()) add_tokens(added);
  const JsonSection post = section_of(file, path, "post_processor");
  if (!post.is_null()) read_post_processor(post);
  // tokenizer_config.json is read last: its names win.
  read_special_strings(join_path(folder, "special_tokens_map.json"));
  const std::string config = join_path(folder, "tokenizer_config.json");
  read_special_strings(config);
  const auto found = special_strings.find("eos_token");
  if (found == special_strings.end()) return;
  eos = find(found->second);
  if (!eos)
    fail(Exit::data, {.what = "the end-of-sequence token is not in the vocabulary",
                      .where = config + ": eos_token",
                      .why = fmt::format("\"{}\" is neither in model.vocab nor in added_tokens of {}",
                                         found->second.substr(0, 80), path),
                      .fix = "give eos_token a token of this vocabulary"});
}

void Tokenizer::Parts::set_entry(int32_t id, const std::string& token, bool special) {
  const auto index = static_cast<size_t>(id);
  if (index >= entries.size()) entries.resize(index + 1);
  entries[index] = {true, special, decoder.piece(token)};
}

/// Ids are those the reference gives: that of the vocabulary if the content is there, else the next free one.
void Tokenizer::Parts::add_tokens(const JsonSection& section) {
  const std::vector<JsonSection> items = section.items();
  const std::vector<AddedToken> tokens = read_added_tokens(section);
  const auto vocab_size = static_cast<int32_t>(bpe->vocab().size());
  int32_t next = vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const AddedToken& token = tokens[i];
    const auto in_vocab = bpe->vocab().find(token.content);
    const int32_t expected = in_vocab != bpe->vocab().end() ? in_vocab->second : next;
    if (token.id != expected)
      items[i].at("id").refuse(fmt::format(
          "does not fit: \"{}\" {} and has to be {}", token.content.substr(0, 80),
          in_vocab != bpe->vocab().end() ? "is in model.vocab" : "is the next new token", expected));
    if (in_vocab == bpe->vocab().end()) ++next;
    if (!added_ids.emplace(token.content, token.id).second) items[i].at("content").refuse("occurs twice");
    std::string buffer;
    std::string pattern(token.normalized ? normalizer.apply(token.content, buffer) : token.content);
    if (pattern.empty()) items[i].at("content").refuse("is empty after normalisation");
    (token.normalized ? normalized_tokens : raw_tokens).add(token, pattern);
    set_entry(token.id, pattern, token.special);
  }
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
  for (const JsonSection& item : section.at("single").items()) {
    item.allow({"SpecialToken", "Sequence"});
    if (item.has("Sequence")) {
      const JsonSection id = item.at("Sequence").at("id");
      if (id.text() != "A" || text_seen) id.refuse("is not the only sequence A of the template");
      text_seen = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id").text();
    for (const JsonSection& id : section.at("special_tokens").at(name).at("ids").items()) {
      const int64_t value = id.integer();
      if (value < 0 || value >= std::ssize(entries) || !entries[static_cast<size_t>(value)].exists)
        id.refuse("names no token");
      (text_seen ? after : before).push_back(static_cast<int32_t>(value));
    }
  }
  if (!text_seen) section.at("single").refuse("has no sequence A");
  // Templates in a sequence of post-processors wrap what the earlier ones gave.
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
  if (prefix.size() + suffix.size() > kMaxTemplate)
    section.refuse(
        fmt::format("adds {} tokens, the limit is {}", prefix.size() + suffix.size(), kMaxTemplate));
}

/// Takes every "..._token" that is a string or an added token written out ({"content": ...}).
void Tokenizer::Parts::read_special_strings(const std::string& path) {
  if (!path_exists(path)) return;
  const Json config = read_json_file(path);
  if (!config.is_object())
    fail(Exit::data, {.what = "tokenizer settings cannot be used",
                      .where = path,
                      .why = "not a JSON object",
                      .fix = "fetch the file again"});
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) {
      special_strings[key] = value.get<std::string>();
    } else if (value.is_object() && value.contains("content") && value.at("content").is_string()) {
      special_strings[key] = value.at("content").get<std::string>();
    }
  }
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
  return Tokenizer(std::make_unique<Parts>(folder, read_tokenizer_file(path)));
}

}  // namespace temper
