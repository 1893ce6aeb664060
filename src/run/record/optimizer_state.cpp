#include "src/run/record/optimizer_state.h"

namespace temper {

std::vector<StateTensor> state_tensors(const Optimizer& optimizer, Device device, StateUse use) {
  std::vector<StateTensor> list;
  for (const OptimizerPiece& p : optimizer.pieces()) {
    const ParamSpec& spec = p.parameter->spec;
    for (const LogicalRange& range : logical_ranges(p, optimizer.tp_rank())) {
      if (use == StateUse::save && !range.first) continue;
      const auto part = [&](const Tensor& t) { return rows(t, range.own.begin, range.own.end); };
      const auto add = [&](const char* kind, const Tensor& data, const Tensor& remainder = {}) {
        list.push_back({kind + spec.name,
                        spec.shape,
                        {range.whole, range.whole + range.own.size()},
                        part(data),
                        device,
                        /*as_fp32=*/true,
                        remainder.empty() ? remainder : part(remainder)});
      };
      if (p.master.dtype == DType::u16)
        add("param/", p.weight, p.master);
      else
        add("param/", p.master);
      add("opt/m/", p.m);
      add("opt/v/", p.v);
    }
  }
  return list;
}

}  // namespace temper
