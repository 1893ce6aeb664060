#include "src/models/freeze.h"

#include <algorithm>

#include "src/core/text/nearest.h"
#include "src/core/text/pattern.h"
#include "src/models/parameter_specs.h"

namespace temper {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

bool is_router(const ParamSpec& spec) { return spec.name.ends_with(".moe.router"); }

std::string unknown_text(const ModelConfig& config, const std::string& name,
                         const std::vector<std::string>& tensors) {
  if (config.tie_word_embeddings && name == "lm_head.weight")
    return "\"lm_head.weight\" is no tensor of its own in this model: its head is model.embed_tokens.weight";
  return fmt::format("none of the model's {} tensors is called \"{}\"{}", tensors.size(), name,
                     did_you_mean(name, tensors));
}

}  // namespace

Freeze frozen_parameters(const ModelConfig& config, const std::vector<std::string>& names) {
  const std::vector<ParamSpec> specs = parameter_specs(config);
  std::vector<std::string> tensors;
  for (const ParamSpec& spec : specs)
    for (const HfPart& tensor : tensors_of(spec)) tensors.push_back(tensor.name);
  const auto named = [&](const std::string& tensor) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return matches_pattern(name, tensor); });
  };
  Freeze freeze;
  for (const std::string& name : names)
    if (std::none_of(tensors.begin(), tensors.end(), [&](const auto& t) { return matches_pattern(name, t); }))
      freeze.defects.push_back(unknown_text(config, name, tensors));
  for (const ParamSpec& spec : specs) {
    std::vector<std::string> inside, outside;
    for (const HfPart& tensor : tensors_of(spec))
      (named(tensor.name) ? inside : outside).push_back(tensor.name);
    if (outside.empty()) freeze.parameters.insert(spec.name);
    if (!inside.empty() && !outside.empty())
      freeze.defects.push_back(fmt::format("{} is stored as one with {} ({}): name all {} of them, or none",
                                           joined(inside), joined(outside), spec.name,
                                           inside.size() + outside.size()));
  }
  if (freeze.parameters.size() == specs.size())
    freeze.defects.push_back(
        fmt::format("all {} tensors of the model are named: nothing is left to train", tensors.size()));
  return freeze;
}

std::vector<std::string> router_parameters(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : parameter_specs(config))
    if (is_router(spec)) names.push_back(spec.name);
  return names;
}

std::vector<std::string> router_tensors(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : parameter_specs(config))
    for (const HfPart& part : spec.parts)
      if (is_router(spec)) names.push_back(part.name);
  return names;
}

}  // namespace temper
