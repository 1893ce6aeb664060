#pragma once
// What differs between the configs of two starts of one run.

#include "src/config/config.h"

namespace temper {

struct ConfigChange {
  std::string key, before, after;  // values as TOML; what an absent one means
  std::string same = {};           // another path where this is the same: what is known of that

  std::string text() const {
    return key + " " + before + " -> " + after + (same.empty() ? "" : " (" + same + ")");
  }
  /// The run would not be the same run: another algorithm, model, tokenizer, seed or other data.
  bool grave() const;
};

/// model.path, or the path of a role's section.
bool leads_to_model(std::string_view key);

/// The changes stand in the order of the keys.
std::vector<ConfigChange> config_changes(const Config& before, const Config& after);

}  // namespace temper
