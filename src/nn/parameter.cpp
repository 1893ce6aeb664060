#include "src/nn/parameter.h"

#include <algorithm>

namespace temper {
namespace {

constexpr int64_t kPad = 16;

/// From an element of `flat` on; the shape is that of `value`, which has no memory yet.
Tensor view(const Tensor& flat, int64_t first, const Parameter& p) {
  Tensor t = p.value;
  t.dtype = flat.dtype;
  t.data = static_cast<char*>(flat.raw()) + first * dtype_size(flat.dtype);
  return t;
}

/// What a rank with these rows has of a parameter.
Tensor local_shape(const ParamSpec& spec, const std::vector<RowSpan>& spans) {
  Tensor t;
  t.rank = static_cast<int>(spec.shape.size());
  for (size_t i = 0; i < spec.shape.size(); ++i) t.dims[i] = spec.shape[i];
  t.dims[0] = spans.back().own + spans.back().rows;
  return t;
}

RowSpan span_of_part(const ParamSpec& spec, const HfPart& part, const ShardPlace& of) {
  const int64_t rank = of.rank, ranks = of.ranks;
  if (spec.shard == Shard::none) return {.whole = 0, .rows = part.rows, .num_ranks = of.ranks};
  if (spec.shard == Shard::vocabulary) {
    const int64_t chunks = num_chunks(part.rows);
    const auto bound = [&](int64_t r) { return std::min(part.rows, chunks * r / ranks * kVocabularyChunk); };
    return {.whole = bound(rank), .rows = bound(rank + 1) - bound(rank), .first_rank = of.rank};
  }
  if (part.heads > 0 && part.heads < ranks) {
    CHECK(ranks % part.heads == 0, "{} heads of {} for {} ranks", part.heads, part.name, ranks);
    const int64_t copies = ranks / part.heads, head = rank / copies, rows = part.rows / part.heads;
    return {.whole = head * rows,
            .rows = rows,
            .first_rank = static_cast<int>(head * copies),
            .num_ranks = static_cast<int>(copies)};
  }
  CHECK(std::max(part.heads, int64_t{part.heads == 0} * part.rows) % ranks == 0, "{} rows of {} for {} ranks",
        part.rows, part.name, ranks);
  return {.whole = rank * part.rows / ranks, .rows = part.rows / ranks, .first_rank = of.rank};
}

}  // namespace

std::vector<RowSpan> row_spans(const ParamSpec& spec, const ShardPlace& of) {
  const bool own_unit = of.units.has(spec.unit_number);
  std::vector<RowSpan> spans;
  int64_t own = 0, whole = 0;
  for (const HfPart& part : spec.parts) {
    RowSpan span = spec.is_in(of.units) ? span_of_part(spec, part, of) : RowSpan{};
    span.own = own, span.whole += whole, span.copy = !own_unit;
    own += span.rows, whole += part.rows;
    spans.push_back(span);
  }
  return spans;
}

int64_t ParamSpec::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Parameter& ParameterStore::add(ParamSpec spec, const ShardPlace& of) {
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
  p.spans = row_spans(p.spec, of);
  p.value = local_shape(p.spec, p.spans);
  num_elements_ += (p.value.size() + kPad - 1) / kPad * kPad;
  if (units_.empty() || units_.back().name != p.spec.unit) units_.push_back({p.spec.unit, {p.offset, 0}});
  units_.back().range.end = num_elements_;
  return p;
}

void ParameterStore::allocate(DType storage, bool with_gradients, Device device,
                              const GradientShards& shards) {
  CHECK(values_.empty(), "parameters allocated twice");
  shards_ = shards;
  memory_ = Arena(device, MemoryUse::weights);
  values_ = memory_.zeros({num_elements_}, storage);
  if (with_gradients) {
    grad_memory_ = Arena(device, MemoryUse::gradients);
    make_grads(accumulate_dtype(storage));
    grad_memory_.suspend();
  }
  for (Parameter& p : list_) {
    const Unit& unit = unit_at(p.offset);
    if (with_gradients && p.spec.trained) p.grad = view(grads_of(unit), p.offset - unit.range.begin, p);
    p.value = view(values_, p.offset, p);
  }
}

void ParameterStore::make_grads(DType dtype) {
  if (!shards_grads()) {
    grads_ = grad_memory_.zeros({num_elements_}, dtype);
    return;
  }
  int64_t sums = 0, tied = 0, most = 0;
  for (const Unit& unit : units_) {
    shard_begin_.push_back(sums);
    sums += shard_range(unit.range.size(), shards_.rank, shards_.ranks).size();
    (is_tied(unit) ? tied : most) = std::max(is_tied(unit) ? tied : most, unit.range.size());
  }
  grads_ = grad_memory_.zeros({sums}, dtype);
  windows_ = grad_memory_.zeros({tied + most}, dtype);
}

bool ParameterStore::is_tied(const Unit& unit) const {
  for (const Parameter& p : list_)
    if (p.spec.also_in >= 0 && p.spec.unit == unit.name) return true;
  return false;
}

const Unit& ParameterStore::unit_at(int64_t element) const {
  const auto after = std::upper_bound(units_.begin(), units_.end(), element,
                                      [](int64_t e, const Unit& u) { return e < u.range.end; });
  return after == units_.end() ? units_.back() : *after;
}

Tensor ParameterStore::flat_grads() const {
  CHECK(!shards_grads(), "only shards of the gradients are kept");
  return grads_;
}

Tensor ParameterStore::grads_of(const Unit& unit) const {
  if (!shards_grads()) return rows(grads_, unit.range.begin, unit.range.end);
  const int64_t size = unit.range.size();
  return is_tied(unit) ? rows(windows_, 0, size) : rows(windows_, windows_.size() - size, windows_.size());
}

Tensor ParameterStore::grad_sums(int64_t first, int64_t size) const {
  if (!shards_grads()) return rows(grads_, first, first + size);
  const Unit& unit = unit_at(first);
  const FlatRange own = shard_range(unit.range.size(), shards_.rank, shards_.ranks);
  const int64_t begin =
      shard_begin_[static_cast<size_t>(&unit - units_.data())] + first - unit.range.begin - own.begin;
  return rows(grads_, begin, begin + size);
}

int64_t ParameterStore::num_parameters() const {
  int64_t n = 0;
  for (const Parameter& p : list_) n += p.spec.size();
  return n;
}

Tensor Parameter::grad_sum(Lane& lane) {
  if (std::exchange(cleared, false)) device::fill(lane, grad.raw(), 0, grad.bytes());
  return grad;
}

/// The padding between parameters is all that has to be known: it stays zero.
void ParameterStore::resume_grads(Lane& lane) {
  if (!like_gpu(device())) return;
  grad_memory_.resume();
  for (const Parameter& p : list_) clear_padding(lane, p);
}

/// What comes after a gradient, up to the next one.
void ParameterStore::clear_padding(Lane& lane, const Parameter& p) {
  if (!p.has_grad()) return;
  const int64_t padding = (kPad - p.grad.size() % kPad) % kPad;
  if (padding > 0)
    device::fill(lane, static_cast<char*>(p.grad.raw()) + p.grad.bytes(), 0,
                 padding * dtype_size(p.grad.dtype));
}

void ParameterStore::move_to_host(Lane& lane) {
  host_values_ = host_memory_.like(values_);
  host_memory_.pin();
  device::copy_from_device(lane, host_values_.raw(), values_.data, values_.bytes());
  drop();
}

void ParameterStore::fetch(Lane& lane) {
  if (std::exchange(fetched_, true)) return;
  memory_.resume();
  device::copy_to_device(lane, values_.raw(), host_values_.data, values_.bytes());
}

void ParameterStore::drop() {
  if (host_values_.empty() || !std::exchange(fetched_, false)) return;
  memory_.suspend();
}

void ParameterStore::clear_grads() {
  for (Parameter& p : list_) p.cleared = p.has_grad();
}

void ParameterStore::clear_sums(Lane& lane) {
  if (shards_grads()) device::fill(lane, grads_.raw(), 0, grads_.bytes());
}

void ParameterStore::settle_grads(Lane& lane, const Unit& unit) {
  for (Parameter& p : list_)
    if (p.offset >= unit.range.begin && p.offset < unit.range.end) {
      p.grad_sum(lane);
      if (shards_grads()) clear_padding(lane, p);  // units have their gradients in the same window
    }
}

}  // namespace temper
