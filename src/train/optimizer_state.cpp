#include "src/train/optimizer_state.h"

namespace temper {

std::vector<StateTensor> state_tensors(const Optimizer& optimizer, Device device, StateUse use) {
  std::vector<StateTensor> list;
  const auto add = [&](const char* kind, const OptimizerPiece& p, const Tensor& data,
                       const Tensor& remainder = {}) {
    const ParamSpec& spec = p.parameter->spec;
    for (const LogicalRange& range : logical_ranges(p, optimizer.tp_rank())) {
      if (use == StateUse::save && !range.first) continue;
      const auto part = [&](const Tensor& t) { return rows(t, range.own.begin, range.own.end); };
      list.push_back({kind + spec.name,
                      spec.shape,
                      {range.whole, range.whole + range.own.size()},
                      part(data),
                      device,
                      /*as_fp32=*/true,
                      remainder.empty() ? remainder : part(remainder)});
    }
  };
  for (const OptimizerPiece& p : optimizer.pieces()) {
    if (p.master.dtype == DType::u16)
      add("param/", p, p.weight, p.master);
    else
      add("param/", p, p.master);
    add("opt/m/", p, p.m);
    add("opt/v/", p, p.v);
  }
  for (const OptimizerPiece& p : optimizer.frozen())
    if (p.parameter->spec.whose != Whose::base) add("param/", p, p.weight);
  return list;
}

}  // namespace temper
