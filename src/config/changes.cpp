#include "src/config/changes.h"

#include <algorithm>
#include <array>

#include "src/config/values.h"

namespace temper {
namespace {

/// A key, or a section with its dot.
constexpr std::array<std::string_view, 9> kGrave{"algorithm.name", "data.",        "lora.",
                                                 "model.init",     "run.seed",     "--replay",
                                                 "tokenizer.",     "train.freeze", "moe.router.freeze"};

std::string shown(const Field& field) {
  const Json value = field_json(field);
  return value.is_null() ? std::string(field.spec.absent_means) : toml_text(value);
}

}  // namespace

bool leads_to_model(std::string_view key) {
  return key == "model.path" || (key.starts_with("roles.") && key.ends_with(".path"));
}

bool ConfigChange::grave() const {
  const bool listed = std::any_of(kGrave.begin(), kGrave.end(), [&](std::string_view name) {
    return name.ends_with('.') ? key.starts_with(name) : key == name;
  });
  return same.empty() && (listed || leads_to_model(key));
}

std::vector<ConfigChange> config_changes(const Config& before, const Config& after) {
  Config old_copy = before, new_copy = after;
  const std::vector<Field> old_fields = config_fields(old_copy), new_fields = config_fields(new_copy);
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < new_fields.size(); ++i)
    if (field_json(old_fields[i]) != field_json(new_fields[i]))
      changes.push_back({new_fields[i].key, shown(old_fields[i]), shown(new_fields[i])});
  return changes;
}

}  // namespace temper
