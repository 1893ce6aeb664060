// The section [lora]: what of it is wrong for a model, and what adapters it means.

#include <algorithm>

#include "src/core/text/nearest.h"
#include "src/models/parameter_specs.h"
#include "src/run/plan/draft.h"

namespace temper {
namespace {

Json as_list(const std::set<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

std::set<std::string> targets_of(PlanDraft& d, const std::set<std::string>& modules) {
  const std::vector<std::string> known(modules.begin(), modules.end());
  std::set<std::string> targets;
  for (const std::string& name : d.config.lora.targets) {
    if (modules.contains(name)) {
      targets.insert(name);
      continue;
    }
    const bool of_experts = !d.facts.moe.layers.empty() && name.ends_with("_proj");
    d.error("lora.targets",
            fmt::format(
                "\"{}\" is no module that adapters can be of: {}{}", name,
                of_experts ? "experts get none, the modules of attention do" : "the model has",
                of_experts ? "" : fmt::format(" {}{}", fmt::join(known, ", "), did_you_mean(name, known))),
            {as_list(modules)});
  }
  return targets;
}

/// A key says what the folder of adapters says, or nothing.
template <class Value>
void take(PlanDraft& d, const char* key, bool written, const Value& wanted, Value& value, const Json& legal) {
  if (!written) return;
  if (d.models.adapters.on() && wanted != value)
    return d.error(key,
                   fmt::format("the adapters of lora.path = {} have {}", d.config.lora.path, legal.dump()),
                   {legal});
  value = wanted;
}

void warn_of_idle(PlanDraft& d) {
  const LoraConfig& c = d.config.lora;
  if (c.alpha || c.rslora || !c.targets.empty())
    d.warn("[lora] has no effect: lora.rank is 0 and lora.path is empty, so that there are no adapters");
}

}  // namespace

void plan_adapters(PlanDraft& d) {
  const LoraConfig& c = d.config.lora;
  if (!c.on()) return warn_of_idle(d);
  const std::set<std::string> modules = adapter_modules(d.facts);
  AdapterConfig adapters = d.models.adapters;
  const bool here = adapters.on();   // lora.path
  if (!here && c.rank == 0) return;  // its absence is said elsewhere
  if (!here) adapters = {.rank = c.rank, .alpha = 2.0 * static_cast<double>(c.rank), .targets = modules};
  const std::set<std::string> targets = targets_of(d, modules);
  take(d, "lora.rank", c.rank > 0, c.rank, adapters.rank, adapters.rank);
  take(d, "lora.alpha", c.alpha.has_value(), c.alpha.value_or(0), adapters.alpha, adapters.alpha);
  take(d, "lora.rslora", c.rslora.has_value(), c.rslora.value_or(false), adapters.rslora, adapters.rslora);
  take(d, "lora.targets", !targets.empty(), targets, adapters.targets, as_list(adapters.targets));
  if (d.config.model.init == "random")
    d.error("model.init", "adapters are trained beside weights that a folder has (temper init makes one)",
            {"load"});
  if (!d.config.train.freeze.empty())
    d.error("train.freeze", "with adapters (lora.rank, lora.path) nothing else is trained", {Json::array()});
  d.models.base = d.models.policy;
  if (!c.path.empty()) d.models.base->adapters = adapters;
  d.models.policy.adapters = d.result.plan.adapters = adapters;
}

}  // namespace temper
