#include "src/run/record/origins/output_settings.h"

#include <algorithm>

#include "src/config/fields.h"
#include "src/config/values.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/log.h"

namespace temper {
namespace {

constexpr JsonLimits kLimits{.depth = 32, .bytes = int64_t{16} << 20};

constexpr std::string_view kSections[] = {"data.", "reward.", "rollout.", "validation."};
constexpr std::string_view kSingle[] = {"model.context_tokens", "model.init", "run.seed"};
/// Keys of those sections that change no line, only how many there are, or when and where they are made.
constexpr std::string_view kWithout[] = {
    "data.shuffle",
    "data.train",
    "rollout.dump_compress",
    "rollout.dump_every",
    "rollout.dynamic_sampling_rounds",
    "rollout.kv_memory",
    "rollout.kv_page_tokens",
    "rollout.max_prompt_tokens",
    "rollout.max_running_sequences",
    "rollout.prefill_chunk_tokens",
    "rollout.prompts_per_step",
    "rollout.samples_per_prompt",
    "rollout.tokens_per_step",
    "validation.data",
    "validation.every",
    "validation.max_prompts",
};

template <class List>
bool has(const List& list, std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool changes_lines(std::string_view key) {
  const bool listed = std::any_of(std::begin(kSections), std::end(kSections),
                                  [&](std::string_view section) { return key.starts_with(section); });
  return (listed && !has(kWithout, key)) || has(kSingle, key);
}

std::string settings_file(const std::string& file) { return file + ".settings.json"; }

std::string shown(const Json& value) {
  const std::string text = dump_json_line(value);
  return text.size() > 400 ? fmt::format("{}...", text.substr(0, 400)) : text;
}

}  // namespace

Json sampling_settings(const Config& config) {
  Config copy = config;
  Json settings = Json::object();
  for (const Field& field : config_fields(copy))
    if (changes_lines(field.key)) settings[field.key] = field_json(field);
  return settings;
}

Json sampling_settings(const RolloutConfig& section) {
  Config config;
  config.rollout = section;
  const Json all = sampling_settings(config);
  Json settings = Json::object();
  for (const auto& [key, value] : all.items())
    if (key.starts_with("rollout.")) settings[key] = value;
  return settings;
}

Json settings_of_files(const std::map<std::string, FileDigest>& files) {
  Json settings = Json::object();
  for (const auto& [name, file] : files) settings[name] = file.digest;
  return settings;
}

void compare_output_settings(const std::string& file, const Json& settings, bool begun) {
  if (!begun) return;
  const std::string path = settings_file(file);
  if (!path_exists(path))
    return log::warn(
        "{} has results, and there is no {} that says what made them: they are taken for results of these "
        "settings",
        file, path);
  const Json before = read_json_file(path, kLimits);
  std::string keys, changes;
  for (const auto& [key, value] : settings.items()) {
    const auto old = before.is_object() ? before.find(key) : before.end();
    if (old == before.end() || *old == value) continue;
    keys += (keys.empty() ? "" : ", ") + key;
    changes += fmt::format("{}{} {} -> {}", changes.empty() ? "" : "; ", key, shown(*old), shown(value));
  }
  if (keys.empty()) return;
  fail(Exit::usage,
       {.what = "the file holds results of other settings",
        .where = fmt::format("--out {}: {}", file, keys),
        .why = fmt::format("{} says what made them; it is another one now: {}", path, changes),
        .fix = "give the settings that it was made with, name another file, or remove this one"});
}

void write_output_settings(const std::string& file, const Json& settings) {
  write_file_atomic(settings_file(file), settings.dump(1) + "\n");
}

}  // namespace temper
