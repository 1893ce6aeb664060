// The section [lora]: what of it is wrong for a model, and what adapters it means.

#include <algorithm>

#include "src/core/text/nearest.h"
#include "src/models/parameter_specs.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

Json as_list(const std::set<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

std::set<std::string> targets_of(const Config& config, const ModelConfig& model,
                                 const std::set<std::string>& modules, Findings& found) {
  const std::vector<std::string> known(modules.begin(), modules.end());
  std::set<std::string> targets;
  for (const std::string& name : config.lora.targets) {
    if (modules.contains(name)) {
      targets.insert(name);
      continue;
    }
    const bool of_experts = !model.moe.layers.empty() && name.ends_with("_proj");
    found.error(
        "lora.targets",
        fmt::format(
            "\"{}\" is no module that adapters can be of: {}{}", name,
            of_experts ? "experts get none, the modules of attention do" : "the model has",
            of_experts ? "" : fmt::format(" {}{}", fmt::join(known, ", "), did_you_mean(name, known))),
        {as_list(modules)});
  }
  return targets;
}

void warn_of_idle(const LoraConfig& c, Findings& found) {
  if (c.alpha || c.rslora || !c.targets.empty())
    found.warn("[lora] has no effect: lora.rank is 0 and lora.path is empty, so that there are no adapters");
}

}  // namespace

AdapterConfig plan_adapters(const Config& config, const RunModels& models, Findings& found) {
  const LoraConfig& c = config.lora;
  if (!c.on()) {
    warn_of_idle(c, found);
    return {};
  }
  const std::set<std::string> modules = adapter_modules(models.policy);
  AdapterConfig adapters = models.adapters;
  const bool here = adapters.on();      // lora.path
  if (!here && c.rank == 0) return {};  // its absence is said elsewhere
  if (!here) adapters = {.rank = c.rank, .alpha = 2.0 * static_cast<double>(c.rank), .targets = modules};
  // A key says what the folder of adapters says, or nothing.
  const auto take = [&](const char* key, bool written, const auto& wanted, auto& value, const Json& legal) {
    if (written && here && wanted != value)
      found.error(key, fmt::format("the adapters of lora.path = {} have {}", c.path, legal.dump()), {legal});
    else if (written)
      value = wanted;
  };
  const std::set<std::string> targets = targets_of(config, models.policy, modules, found);
  take("lora.rank", c.rank > 0, c.rank, adapters.rank, adapters.rank);
  take("lora.alpha", c.alpha.has_value(), c.alpha.value_or(0), adapters.alpha, adapters.alpha);
  take("lora.rslora", c.rslora.has_value(), c.rslora.value_or(false), adapters.rslora, adapters.rslora);
  take("lora.targets", !targets.empty(), targets, adapters.targets, as_list(adapters.targets));
  if (config.model.init == "random")
    found.error("model.init", "adapters are trained beside weights that a folder has (temper init makes one)",
                {"load"});
  if (!config.train.freeze.empty())
    found.error("train.freeze", "with adapters (lora.rank, lora.path) nothing else is trained",
                {Json::array()});
  return adapters;
}

RunModels with_adapters(const RunModels& models, const AdapterConfig& adapters, const LoraConfig& config) {
  RunModels trained = models;
  if (!adapters.on()) return trained;
  trained.base = models.policy;
  if (!config.path.empty()) trained.base->adapters = adapters;
  trained.policy.adapters = adapters;
  return trained;
}

}  // namespace temper
