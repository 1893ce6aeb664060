#include "src/config/load.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "src/config/later_keys.h"
#include "src/config/methods.h"
#include "src/config/typed/peer_keys.h"
#include "src/config/values.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/split.h"
#include "src/core/text/nearest.h"

namespace temper {
namespace {

using Kind = TomlNode::Kind;
constexpr int64_t kMaxBytes = int64_t{1} << 20;
constexpr const char* kCommandLine = "command line";
constexpr size_t kMaxErrors = 200;  // of a file that is no config of temper at all

/// `from` over `into`: tables are merged, everything else is replaced.
void merge(TomlNode& into, const TomlNode& from) {
  if (into.kind != Kind::table || from.kind != Kind::table) {
    into = from;
    return;
  }
  for (const auto& [key, value] : from.table) {
    if (TomlNode* old = into.find(key))
      merge(*old, value);
    else
      into.table.push_back({key, value});
  }
}

void set_origin(TomlNode& node, const std::string& origin) {
  node.origin = origin;
  for (TomlNode& item : node.items) set_origin(item, origin);
  for (auto& [key, value] : node.table) set_origin(value, origin);
}

/// "a.b=c" as the tree {a: {b: c}}.
TomlNode override_tree(const std::string& text) {
  const size_t equals = text.find('=');
  TomlNode node = parse_toml_value(text.substr(equals + 1), kCommandLine);
  set_origin(node, kCommandLine);
  std::vector<std::string> parts = split(text.substr(0, equals), '.');
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    TomlNode table;
    table.origin = kCommandLine;
    table.table.push_back({*part, std::move(node)});
    node = std::move(table);
  }
  return node;
}

std::string read_config_text(const std::string& path) {
  if (is_directory(path))
    fail(Exit::usage, {.what = "the config is a folder",
                       .where = path,
                       .why = "a TOML file is read",
                       .fix = "give the file, for example " + join_path(path, "config.toml")});
  const InputFile file(path);
  std::string text(static_cast<size_t>(std::min(file.size(), kMaxBytes + 1)),
                   '\0');  // one more: found too large below
  file.read(text.data(), 0, static_cast<int64_t>(text.size()));
  return text;
}

/// A model of its own says what is right, or programs that play sessions do.
bool is_judged(const Config& config) {
  if (!config.rollout.harness.empty()) return true;
  return std::any_of(config.roles.rows().begin(), config.roles.rows().end(), [&](const RoleTraits& row) {
    return row.keys.has(RoleKey::path) && row.needed(config);
  });
}

/// Walks the tree along the field list.
class Loader {
 public:
  explicit Loader(ConfigReading& out)
      : out_(out), fields_(config_fields(out.loaded.config)), later_(later_keys()) {
    for (const Field& field : fields_) {
      by_key_[field.key] = &field;
      known_.push_back(field.key);
      out_.loaded.origins[field.key] = "default";
    }
    for (const LaterKey& later : later_)
      if (!by_key_.contains(later.key)) known_.push_back(later.key);
  }

  void read_table(const TomlNode& table, const std::string& prefix) {
    for (const auto& [name, node] : table.table) {
      const std::string key = prefix.empty() ? quote_toml_key(name) : prefix + "." + quote_toml_key(name);
      read_key(key, node);
    }
  }

  /// Two keys stand for each other: the one of the command line counts, both at once are an error.
  void choose_keys() {
    Config defaults;
    const std::vector<Field> unset = config_fields(defaults);
    for (const Field& field : fields_) {
      const std::string other(field.spec.instead);
      if (other.empty() || origin(field.key) == "default" || origin(other) == "default") continue;
      const bool first = origin(field.key) == kCommandLine, second = origin(other) == kCommandLine;
      if (first == second) {
        add({other, origin(other), fmt::format("{} is written, too; write only one of them", field.key), {}});
        continue;
      }
      const std::string& dropped = first ? other : field.key;
      const auto named = [&](const Field& f) { return f.key == dropped; };
      const Field& from = *std::find_if(unset.begin(), unset.end(), named);
      std::visit([&](auto* to) { *to = *std::get<decltype(to)>(from.target); }, by_key_[dropped]->target);
      out_.loaded.origins[dropped] = "default";
    }
  }

  void require_keys() {
    const bool supervised = !algorithm_traits(out_.loaded.config.algorithm.name).generates,
               judged = is_judged(out_.loaded.config);
    for (const Field& field : fields_) {
      const Needed needed = field.spec.needed;
      const bool wanted = needed == Needed::always || (needed == Needed::supervised && supervised) ||
                          (needed == Needed::reinforcement && !supervised) ||
                          (needed == Needed::rewards && !supervised && !judged);
      const std::string other(field.spec.instead);
      if (!wanted || is_written(field.key) || (!other.empty() && is_written(other))) continue;
      std::vector<Json> legal;
      if (!field.spec.example.is_null()) legal.push_back(field.spec.example);
      const std::string for_whom =
          needed == Needed::always
              ? ""
              : " with algorithm.name = " + quote_toml(out_.loaded.config.algorithm.name);
      const std::string or_other = other.empty() ? "" : fmt::format(", or {}", other);
      add({field.key, "",
           fmt::format("this key is required{}{}; legal: {}", for_whom, or_other, rule_text(field)), legal});
    }
  }

 private:
  void add(ConfigError error) {
    if (out_.errors.size() < kMaxErrors) out_.errors.push_back(std::move(error));
  }
  bool failed(const std::string& key) const {
    return std::any_of(out_.errors.begin(), out_.errors.end(),
                       [&](const ConfigError& e) { return e.key == key; });
  }
  const std::string& origin(const std::string& key) const { return out_.loaded.origins.at(key); }
  bool is_written(const std::string& key) const { return origin(key) != "default" || failed(key); }
  bool is_section(const std::string& key) const {
    return std::any_of(known_.begin(), known_.end(),
                       [&](const std::string& k) { return k.starts_with(key + "."); });
  }

  void read_key(const std::string& key, const TomlNode& node) {
    const auto field = by_key_.find(key);
    if (field != by_key_.end()) return read_field(*field->second, node);
    if (const LaterKey* later = find_later(later_, key)) {
      const Json value = node_json(node);
      if (!is_off(*later, value)) add(later_error(*later, value, node.origin));
      return;
    }
    if (!is_section(key)) {
      const bool table = node.kind == Kind::table;
      const std::string hint = table ? section_hint(key, node) : peer_key_hint(key);
      // Another trainer's key is known better than one that is spelled alike.
      const std::string near = hint.empty() ? did_you_mean(key, table ? sections(key) : known_) : "";
      return add(
          {key, node.origin, fmt::format("unknown {}{}{}", table ? "section" : "key", near, hint), {}});
    }
    if (node.kind != Kind::table)
      return add({key,
                  node.origin,
                  fmt::format("this is a section, not a key: it cannot be {}; write its keys as {}.KEY",
                              kind_name(node.kind), key),
                  {}});
    read_table(node, key);
  }

  void read_field(const Field& field, const TomlNode& node) {
    const LaterKey* later = find_later(later_, field.key);
    if (auto bad = read_value(node, field)) {
      if (later) {
        std::erase_if(bad->legal, [&](const Json& value) { return !is_off(*later, value); });
        bad->message += "; in this version: " + legal_text(later->off);
      }
      return add({field.key, node.origin, bad->message, bad->legal});
    }
    out_.loaded.origins[field.key] = node.origin;
    if (later && !is_off(*later, field_json(field))) add(later_error(*later, field_json(field), node.origin));
  }

  /// The hint for the first key of an unknown section that another trainer is known to have, or for the
  /// section.
  std::string section_hint(const std::string& key, const TomlNode& table, int depth = 0) const {
    constexpr int kDeepest = 8;
    for (const auto& [name, node] : table.table) {
      const std::string inner = key + "." + quote_toml_key(name);
      const bool deeper = node.kind == Kind::table && depth < kDeepest;
      std::string hint = deeper ? section_hint(inner, node, depth + 1) : peer_key_hint(inner);
      if (!hint.empty()) return hint;
    }
    return peer_key_hint(key);
  }

  /// Sections as deep as `key`.
  std::vector<std::string> sections(const std::string& key) const {
    const auto depth = std::count(key.begin(), key.end(), '.');
    std::vector<std::string> names;
    for (const std::string& k : known_) {
      std::string name;
      auto parts = split(k, '.');
      for (size_t i = 0; i <= static_cast<size_t>(depth) && i + 1 < parts.size(); ++i)
        name += (i > 0 ? "." : "") + parts[i];
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  ConfigReading& out_;
  std::vector<Field> fields_;
  std::vector<LaterKey> later_;
  std::map<std::string, const Field*> by_key_;
  std::vector<std::string> known_;
};

}  // namespace

std::string override_defect(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return "it has no `=`; an override is section.key=value";
  const std::vector<std::string> parts = split(text.substr(0, equals), '.');
  const bool gap = std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.empty() || part.find_first_of(" \t\r\n") != std::string::npos;
  });
  if (parts.size() < 2 || parts.size() > 64 || gap)
    return "it names no key; an override is section.key=value";
  return "";
}

namespace {

/// The defaults that algorithm.name changes, where nothing else is written.
void take_method_defaults(LoadedConfig& loaded) {
  const AlgorithmTraits& method = algorithm_traits(loaded.config.algorithm.name);
  const std::string from = fmt::format("default of {}", method.name);
  std::map<std::string, Field> by_key;
  for (Field& field : config_fields(loaded.config)) by_key.emplace(field.key, std::move(field));
  for (const MethodDefault& changed : method.defaults) {
    const std::string key(changed.key);
    std::string& origin = loaded.origins.try_emplace(key, "default").first->second;
    if (origin != "default") continue;
    const auto bad = read_value(parse_toml_value(std::string(changed.value), from), by_key.at(key));
    CHECK(!bad, "{} {} = {}: {}", from, key, changed.value, bad->message);
    origin = from;
  }
}

/// "~" and "~/..." as a shell reads them: one never sees the right side of an override, and no config file.
void expand_home(std::string& path) {
  const char* home = std::getenv("HOME");
  if (home && (path == "~" || path.starts_with("~/"))) path.replace(0, 1, home);
}

void expand_home(Config& c) {
  for (std::string* path : {&c.run.dir, &c.model.path, &c.lora.path, &c.checkpoint.resume})
    expand_home(*path);
  for (std::optional<std::string>* path : {&c.tokenizer.path, &c.tokenizer.chat_template})
    if (*path) expand_home(**path);
  for (const RoleTraits& role : c.roles.rows())
    if (std::optional<std::string>& path = c.roles.of(role.name).path) expand_home(*path);
  for (DataSource& source : c.data.train) expand_home(source.path);
  for (ValidationSet& set : c.validation.data) expand_home(set.path);
}

void merge_overrides(TomlNode& tree, const std::vector<std::string>& overrides, ConfigReading& reading) {
  for (const std::string& text : overrides) {
    if (const std::string why = override_defect(text); !why.empty())
      reading.errors.push_back({text, kCommandLine, why, {}});
    else
      merge(tree, override_tree(text));
  }
}

}  // namespace

ConfigReading read_config(const std::string& path, const std::vector<std::string>& overrides,
                          std::span<const RoleTraits> roles) {
  TomlNode tree = parse_toml(read_config_text(path), path);
  ConfigReading reading;
  reading.loaded.config.roles = RolesConfig(roles);
  merge_overrides(tree, overrides, reading);
  Loader loader(reading);
  loader.read_table(tree, "");
  loader.choose_keys();
  loader.require_keys();
  take_method_defaults(reading.loaded);
  expand_home(reading.loaded.config);
  return reading;
}

Config read_dumped_config(const std::string& text, const std::string& source,
                          std::span<const RoleTraits> roles) {
  ConfigReading reading;
  reading.loaded.config.roles = RolesConfig(roles);
  Loader(reading).read_table(parse_toml(text, source), "");
  return std::move(reading.loaded.config);
}

Config config_defaults(const std::string& method) {
  LoadedConfig loaded;
  loaded.config.algorithm.name = method;
  take_method_defaults(loaded);
  return std::move(loaded.config);
}

RolloutConfig load_rollout_overrides(const std::vector<std::string>& overrides) {
  TomlNode tree = parse_toml("", kCommandLine);
  ConfigReading reading;
  merge_overrides(tree, overrides, reading);
  Loader(reading).read_table(tree, "");
  if (!reading.errors.empty()) fail_config(kCommandLine, reading.errors);
  return reading.loaded.config.rollout;
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         std::span<const RoleTraits> roles) {
  ConfigReading reading = read_config(path, overrides, roles);
  if (!reading.errors.empty()) fail_config(path, reading.errors);
  return std::move(reading.loaded);
}

}  // namespace temper
