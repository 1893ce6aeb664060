#include "src/nn/adapter_specs.h"

#include <string_view>

namespace temper {
namespace {

/// "model.layers.0.self_attn.q_proj" of a matrix's tensor; empty: it is none.
std::string module_of(const HfPart& part) {
  constexpr std::string_view kWeight = ".weight";
  if (!part.name.ends_with(kWeight)) return "";
  return part.name.substr(0, part.name.size() - kWeight.size());
}

bool is_target(const std::string& module, const AdapterConfig& adapters,
               const std::set<std::string>& modules) {
  const std::string name = module.substr(module.rfind('.') + 1);
  return modules.contains(name) && adapters.targets.contains(name);
}

}  // namespace

void add_adapter_specs(std::vector<ParamSpec>& specs, size_t begin, const AdapterConfig& adapters,
                       const std::set<std::string>& modules) {
  for (size_t i = begin, end = specs.size(); adapters.on() && i < end; ++i) {
    const ParamSpec base = specs[i];
    ParamSpec a{.name = base.name + ".lora_a",
                .parts = {},
                .shape = {0, base.shape.back()},
                .partial_grad = !base.grad_by_columns,
                .grad_by_columns = base.grad_by_columns,
                .init = Init::uniform,
                .whose = Whose::adapter};
    ParamSpec b{.name = base.name + ".lora_b",
                .parts = {},
                .shape = {0, adapters.rank},
                .shard = Shard::rows,
                .init = Init::zeros,
                .whose = Whose::adapter};
    for (const HfPart& part : base.parts) {
      const std::string module = module_of(part);
      if (!is_target(module, adapters, modules)) continue;
      a.parts.push_back({module + ".lora_A.weight", adapters.rank});
      b.parts.push_back({module + ".lora_B.weight", part.rows, part.heads});
      a.shape[0] += adapters.rank;
      b.shape[0] += part.rows;
    }
    if (a.parts.empty()) continue;
    specs.push_back(std::move(a));
    specs.push_back(std::move(b));
  }
}

}  // namespace temper
