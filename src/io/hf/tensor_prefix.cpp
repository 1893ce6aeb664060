#include "src/io/hf/tensor_prefix.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

constexpr const char *kLong = "model.language_model.", *kShort = "model.";

}  // namespace

std::map<std::string, std::string> match_tensor_prefix(std::map<std::string, TensorInfo>& tensors,
                                                       const ModelConfig& config, const std::string& folder) {
  if (config.kept_tensors.empty()) return {};  // a family that is never part of another model
  const auto is_kept = [&](const std::string& name) {
    return std::any_of(config.kept_tensors.begin(), config.kept_tensors.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  std::string with_long, with_short;
  for (const auto& [name, info] : tensors)
    if (!is_kept(name) && name.starts_with(kShort)) (name.starts_with(kLong) ? with_long : with_short) = name;
  if (!with_long.empty() && !with_short.empty())
    fail(Exit::data, {.what = "tensors of the text model have two prefixes",
                      .where = folder,
                      .why = fmt::format("{} and {}", quote_name(with_long), quote_name(with_short)),
                      .fix = fmt::format("give all of them the prefix \"{}\" or all \"{}\"", kLong, kShort)});
  const std::string stored = with_long.empty() ? kShort : kLong;
  std::map<std::string, std::string> renamed;
  if (stored == config.tensor_prefix) return renamed;
  std::map<std::string, TensorInfo> all;
  for (auto& [name, info] : tensors) {
    const bool other = is_kept(name) || !name.starts_with(stored);
    const std::string seen = other ? name : config.tensor_prefix + name.substr(stored.size());
    if (!other) renamed.emplace(seen, name);
    all.emplace(seen, std::move(info));
  }
  tensors = std::move(all);
  return renamed;
}

}  // namespace temper
