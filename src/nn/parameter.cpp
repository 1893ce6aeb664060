#include "src/nn/parameter.h"

namespace temper {
namespace {

constexpr int64_t kPad = 16;

Tensor view(const Tensor& flat, const Parameter& p) {
  Tensor t;
  t.dtype = flat.dtype;
  t.data = static_cast<char*>(flat.raw()) + p.offset * dtype_size(flat.dtype);
  t.rank = static_cast<int>(p.spec.shape.size());
  for (size_t i = 0; i < p.spec.shape.size(); ++i) t.dims[i] = p.spec.shape[i];
  return t;
}

}  // namespace

int64_t ParamSpec::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Parameter& ParameterStore::add(ParamSpec spec) {
  CHECK(values_.empty(), "parameter {} added after allocation", spec.name);
  CHECK(spec.shape.size() == 1 || spec.shape.size() == 2, "parameter {} has {} dimensions", spec.name,
        spec.shape.size());
  int64_t part_rows = 0;
  for (const HfPart& part : spec.parts) part_rows += part.rows;
  CHECK(part_rows == spec.shape[0], "parts of {} have {} rows, the parameter {}", spec.name, part_rows,
        spec.shape[0]);
  Parameter& p = list_.emplace_back();
  p.spec = std::move(spec);
  p.offset = num_elements_;
  num_elements_ += (p.spec.size() + kPad - 1) / kPad * kPad;
  return p;
}

void ParameterStore::allocate(DType storage, bool with_gradients, Device device) {
  CHECK(values_.empty(), "parameters allocated twice");
  memory_ = Arena(device);
  values_ = memory_.zeros({num_elements_}, storage);
  if (with_gradients) grads_ = memory_.zeros({num_elements_}, accumulate_dtype(storage));
  for (Parameter& p : list_) {
    p.value = view(values_, p);
    if (with_gradients) p.grad = view(grads_, p);
  }
}

int64_t ParameterStore::num_parameters() const {
  int64_t n = 0;
  for (const Parameter& p : list_) n += p.spec.size();
  return n;
}

void ParameterStore::zero_grads() { device::fill(device(), grads_.raw(), 0, grads_.bytes()); }

}  // namespace temper
