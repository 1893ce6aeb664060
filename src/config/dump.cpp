#include <algorithm>

#include "src/config/later_keys.h"
#include "src/config/values.h"
#include "src/core/check.h"

namespace temper {
namespace {

/// A comment may not hold control characters; a path may.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace

std::string dump_config(const LoadedConfig& loaded) {
  Config copy = loaded.config, defaults;
  defaults.roles = RolesConfig(loaded.config.roles.rows());
  const std::vector<Field> unset = config_fields(defaults);
  size_t number = 0;
  std::string text = "# Resolved config: every value, and where it came from.\n", section;
  for (const Field& field : config_fields(copy)) {
    const size_t dot = field.key.find('.');
    if (field.key.substr(0, dot) != section) {
      section = field.key.substr(0, dot);
      text += fmt::format("\n[{}]\n", section);
    }
    const auto origin = loaded.origins.find(field.key);
    const std::string from = one_line(origin == loaded.origins.end() ? "default" : origin->second);
    const std::string name = field.key.substr(dot + 1);
    const Json value = field_json(field);
    // What has no default and was not needed holds something that cannot be written.
    const bool same = value == field_json(unset[number++]);
    if (value.is_null())
      text += fmt::format("# {}: {}  # {}\n", name, field.spec.absent_means, from);
    else if (same && field.spec.needed != Needed::no && from == "default")
      text += fmt::format("# {}: not set  # {}\n", name, from);
    else
      text += fmt::format("{} = {}  # {}\n", name, toml_text(value), from);
  }
  return text;
}

Json config_json(const Config& config) {
  Config copy = config;
  Json object = Json::object();
  for (const Field& field : config_fields(copy))
    if (Json value = field_json(field); !value.is_null()) object[field.key] = std::move(value);
  return object;
}

std::vector<KeyDoc> config_key_docs() {
  Config defaults;
  const std::vector<LaterKey> later = later_keys();
  std::vector<KeyDoc> docs;
  for (const Field& field : config_fields(defaults)) {
    const KeySpec& spec = field.spec;
    KeyDoc doc{.key = field.key,
               .type = type_text(field),
               .unit = std::string(spec.unit),
               .default_text = {},
               .legal = rule_text(field),
               .help = std::string(spec.help),
               .required = spec.needed != Needed::no && spec.needed != Needed::supervised};
    const Json value = field_json(field);
    const bool is_default = spec.needed == Needed::no;
    if (is_default && !value.is_null()) doc.default_text = toml_text(value);
    if (!spec.absent_means.empty())
      doc.default_text += (doc.default_text.empty() ? "" : ": ") + std::string(spec.absent_means);
    if (spec.needed == Needed::reinforcement) doc.help += " (required but for sft)";
    if (spec.needed == Needed::rewards) doc.help += " (required but for sft, and with a teacher)";
    if (spec.needed == Needed::supervised) doc.help += " (required for sft)";
    if (!spec.instead.empty()) doc.help += fmt::format(" (or {})", spec.instead);
    if (const LaterKey* limited = find_later(later, field.key))
      doc.legal = fmt::format("{} in this version (later: {})", legal_text(limited->off), doc.legal);
    docs.push_back(std::move(doc));
  }
  for (const LaterKey& key : later) {
    const bool known =
        std::any_of(docs.begin(), docs.end(), [&](const KeyDoc& doc) { return doc.key == key.key; });
    if (known || key.off.empty()) continue;
    docs.push_back({.key = key.key,
                    .type = "",
                    .unit = {},
                    .default_text = toml_text(key.off.front()),
                    .legal = legal_text(key.off),
                    .help = "not in this version: " + key.feature,
                    .required = false,
                    .later = true});
  }
  return docs;
}

}  // namespace temper
