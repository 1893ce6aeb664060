#include "src/data/tokenizer/settings.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr const char* kOrdered[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

/// A token by its content alone, or written out.
PlacedToken special_token(const JsonSection& place) {
  AddedToken token{.special = true};
  if (place.value().is_string()) {
    token.content = place.text();
    check_content(place, token.content);
  } else {
    token = read_added_token(place);
  }
  return {std::move(token), place, /*has_id=*/false};
}

bool is_token(const Json& value) {
  return value.is_string() ||
         (value.is_object() && value.contains("content") && value.at("content").is_string());
}

bool is_given(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null() && !found->empty();
}

}  // namespace

TokenSettings::TokenSettings(const std::string& folder)
    : config_path_(join_path(folder, "tokenizer_config.json")),
      map_path_(join_path(folder, "special_tokens_map.json")),
      added_path_(join_path(folder, "added_tokens.json")),
      config_(read_settings(config_path_)),
      map_(Json::object()),
      added_(Json::object()) {
  if (!config_.contains("added_tokens_decoder")) {
    map_ = read_settings(map_path_);
    added_ = read_settings(added_path_);
  }
  if (const auto split = config_.find("split_special_tokens");
      split != config_.end() && !split->is_null() && *split != false)
    at("split_special_tokens").refuse("asks for special tokens to be split, which is not supported");
  read_named();
  read_extra();
  if (config_.contains("added_tokens_decoder"))
    read_numbered();
  else
    read_legacy_numbered();
  std::stable_sort(numbered_.begin(), numbered_.end(),
                   [](const PlacedToken& a, const PlacedToken& b) { return a.token.id < b.token.id; });
}

Json TokenSettings::read_settings(const std::string& path) {
  if (!path_exists(path)) return Json::object();
  const std::string text = read_file(path, JsonLimits().bytes);
  files_.push_back(digest_of_text(path, text));
  Json file = parse_json(text, path);
  if (!file.is_object())
    fail(Exit::data, {.what = "tokenizer settings cannot be used",
                      .where = path,
                      .why = "not a JSON object",
                      .fix = "fetch the file again"});
  return file;
}

std::string TokenSettings::where(const std::string& name) const {
  return fmt::format("{}: {}", map_.contains(name) ? map_path_ : config_path_, name);
}

std::optional<bool> TokenSettings::add_prefix_space() const {
  const auto found = config_.find("add_prefix_space");
  if (found == config_.end() || found->is_null()) return std::nullopt;
  return section(config_, config_path_).flag("add_prefix_space", std::nullopt);
}

/// added_tokens_decoder: {"id": {"content": ...}}.
void TokenSettings::read_numbered() {
  const JsonSection tokens = at("added_tokens_decoder");
  if (tokens.is_null()) return;
  for (const auto& [key, place] : tokens.members()) {
    AddedToken token = read_added_token(place);
    const auto result = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (result.ec != std::errc() || result.ptr != key.data() + key.size() || token.id < 0)
      place.refuse("is not under a token id");
    numbered_.push_back({std::move(token), place});
  }
}

/// added_tokens.json: {"content": id}.
void TokenSettings::read_legacy_numbered() {
  std::unordered_set<std::string> special_contents;
  for (const PlacedToken& placed : special_) special_contents.insert(placed.token.content);
  for (const auto& [content, place] : section(added_, added_path_).members()) {
    check_content(place, content);
    const int64_t id = place.integer();
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) place.refuse("is out of range");
    const bool special = special_contents.contains(content);
    numbered_.push_back(
        {{.id = static_cast<int32_t>(id), .content = content, .normalized = !special, .special = special},
         place});
  }
}

void TokenSettings::add_named(const std::string& name, const JsonSection& place) {
  special_.push_back(special_token(place));
  special_.back().token.special = true;
  names_[name] = special_.back().token.content;
}

/// Every "..._token": those that all models know, then what a model has of its own. Of a name in both files
/// that of the map counts, unless the name is the model's own and a plain text in tokenizer_config.json.
void TokenSettings::read_named() {
  using Members = std::unordered_map<std::string, JsonSection>;
  const auto all = section(config_, config_path_).members(), all_mapped = section(map_, map_path_).members();
  Members config, map;
  const auto take = [](const auto& members, Members& named) {
    for (const auto& [name, place] : members)
      if (name.ends_with("_token") && is_token(place.value())) named.emplace(name, place);
  };
  take(all, config);
  take(all_mapped, map);
  const auto add = [&](const std::string& name, const Members& first, const Members& second) {
    if (const auto found = first.find(name); found != first.end()) return add_named(name, found->second);
    if (const auto found = second.find(name); found != second.end()) add_named(name, found->second);
  };
  for (const char* name : kOrdered) add(name, map, config);
  const auto is_text = [&](const std::string& name) {
    const auto found = config.find(name);
    return found != config.end() && found->second.value().is_string();
  };
  for (const auto& [name, unused] : all)
    if (!names_.contains(name) && !is_text(name)) add(name, map, config);
  for (const auto& [name, unused] : all_mapped)
    if (!names_.contains(name)) add(name, is_text(name) ? config : map, map);
  for (const auto& [name, unused] : all)
    if (!names_.contains(name)) add(name, config, config);
  for (const Json* file : {&config_, &map_}) {
    const JsonSection at = section(*file, file == &config_ ? config_path_ : map_path_);
    if (at.has("extra_special_tokens") && at.at("extra_special_tokens").value().is_object())
      for (const auto& [name, place] : at.at("extra_special_tokens").members()) add_named(name, place);
  }
}

/// extra_special_tokens, which were called additional_special_tokens.
void TokenSettings::read_extra() {
  bool given = false;
  const auto read = [&](const Json& file, const std::string& path, const char* key) {
    if (!is_given(file, key) || !file.at(key).is_array()) return;
    given = true;
    for (const JsonSection& place : section(file, path).at(key).items())
      special_.push_back(special_token(place));
  };
  read(config_, config_path_, "extra_special_tokens");
  if (!given) read(config_, config_path_, "additional_special_tokens");
  read(map_, map_path_, "extra_special_tokens");
  if (!given) read(map_, map_path_, "additional_special_tokens");
}

}  // namespace temper
