#pragma once
// Values as people write them elsewhere, where a key of that kind stands: "bfloat16", "GRPO", "True", "1e-6"
// in quotes, the clock of a batch system ("03:45:00").

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/config/fields.h"
#include "src/config/toml_node.h"

namespace temper {

/// The one of `words` that `text` is, in any case or by another usual name ("float32" for fp32, "warning" for
/// warn); nothing where it is none.
std::optional<std::string_view> meant_word(std::string_view text, std::span<const std::string_view> words);

/// What `node` means at the key of `field`, written as that key is; `node` itself where that is the same.
TomlNode as_meant(const TomlNode& node, const Field& field);

}  // namespace temper
