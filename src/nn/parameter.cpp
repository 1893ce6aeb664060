#include "src/nn/parameter.h"

#include <algorithm>

namespace temper {
namespace {

constexpr int64_t kPad = 16;

/// Elements of the flat buffers that a parameter takes.
int64_t flat_size(const Parameter& p) { return (p.value.size() + kPad - 1) / kPad * kPad; }

/// From an element of its unit's memory on; the shape is that of `value`, which has no memory yet.
Tensor view(const Tensor& unit, int64_t first, const Parameter& p) {
  Tensor t = p.value;
  t.dtype = unit.dtype;
  t.data = static_cast<char*>(unit.raw()) + first * dtype_size(unit.dtype);
  return t;
}

/// Where the memory of each unit begins, and where all ends, in elements of type `storage`.
std::vector<int64_t> begins_of(const std::vector<Unit>& units, DType storage) {
  std::vector<int64_t> begins{0};
  for (const Unit& unit : units)
    begins.push_back(begins.back() + places_of(unit, unit.range.size(), storage));
  return begins;
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
  if (spec.shard == Shard::experts) {
    const auto number = &part - spec.parts.data();
    if (number * of.expert_ranks / std::ssize(spec.parts) != of.expert_rank) return {.first_rank = -1};
    return {.rows = part.rows, .first_rank = of.expert_ranks > of.ranks ? of.rank : of.expert_rank};
  }
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

std::vector<HfPart> tensors_of(const ParamSpec& spec) {
  std::vector<HfPart> tensors;
  for (const HfPart& part : spec.parts)
    if (!tensors.empty() && tensors.back().name == part.name)
      tensors.back().rows += part.rows, tensors.back().heads = 0;
    else
      tensors.push_back(part);
  return tensors;
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
  const size_t at = unit_of(spec);
  Unit& unit = units_[at];
  Parameter& p = list_.emplace_back();
  p.spec = std::move(spec);
  p.unit = at;
  p.offset = unit.range.end;
  p.spans = row_spans(p.spec, of);
  p.value = local_shape(p.spec, p.spans);
  const int64_t size = flat_size(p);
  num_elements_ += size;
  unit.range.end += size;
  unit.tied |= p.spec.also_in >= 0;
  for (size_t later = at + 1; later < units_.size(); ++later)
    units_[later].range.begin += size, units_[later].range.end += size;
  for (Parameter& other : list_)
    if (other.unit > at) other.offset += size;
  return p;
}

/// It is made with its first parameter. Those of the units of a layer may come in turn.
size_t ParameterStore::unit_of(const ParamSpec& spec) {
  for (size_t i = units_.size(); i-- > 0 && units_[i].name == spec.unit;)
    if (units_[i].trained == spec.trained && units_[i].summed_over == spec.summed_over &&
        units_[i].wide == spec.wide)
      return i;
  units_.push_back({.name = spec.unit,
                    .number = spec.unit_number,
                    .range = {num_elements_, num_elements_},
                    .trained = spec.trained,
                    .summed_over = spec.summed_over,
                    .wide = spec.wide});
  return units_.size() - 1;
}

UnitGroup ParameterStore::group(int64_t number) const {
  const auto of = [&](const Unit& unit) { return unit.number == number; };
  const auto begin = std::find_if(units_.begin(), units_.end(), of);
  return {begin, std::find_if_not(begin, units_.end(), of)};
}

void ParameterStore::allocate(DType storage, bool with_gradients, Device device, const UnitShards& shards) {
  CHECK(values_.empty(), "parameters allocated twice");
  Lane lane(device);  // that has no work yet
  shards_ = shards;
  memory_ = Arena(device, MemoryUse::weights);
  if (with_gradients && !shards_values()) memory_.share();  // those that generate may read what is trained
  split_ = shards_values() && shards.never_whole;
  values_begin_ = begins_of(units_, storage);
  values_ = split_ ? make_tensor(nullptr, storage, {0}) : memory_.zeros({values_begin_.back()}, storage);
  if (shards_values()) {
    shard_memory_ = Arena(device, MemoryUse::weights);
    window_memory_ = Arena(device, MemoryUse::weights);
    value_shards_ = ShardedUnits(units_, shards, storage, shard_memory_, window_memory_);
    if (!split_) window_memory_.suspend(lane);
  }
  if (with_gradients) {
    const DType sums = accumulate_dtype(storage);
    grad_memory_ = Arena(device, MemoryUse::gradients);
    int64_t trained = 0;
    for (const Unit& unit : units_) {
      grads_begin_.push_back(trained);
      trained += unit.trained ? unit.range.size() : 0;
    }
    if (shards_grads())
      grad_shards_ = ShardedUnits(units_, shards, sums, grad_memory_, grad_memory_, /*trained=*/true);
    else
      grads_ = grad_memory_.zeros({trained}, sums);
    grad_memory_.suspend(lane);
  }
  for (Parameter& p : list_) {
    const Unit& unit = units_[p.unit];
    if (with_gradients && p.spec.trained) p.grad = view(grads_of(unit), p.offset - unit.range.begin, p);
  }
  set_views();
}

void ParameterStore::set_views() {
  for (Parameter& p : list_) {
    const Unit& unit = units_[p.unit];
    p.value = view(values_of(unit), p.offset - unit.range.begin, p);
  }
}

Tensor ParameterStore::flat_values() const {
  CHECK(!split_, "only shards of the values are kept while they are trained");
  return values_;
}

Tensor ParameterStore::values_of(const Unit& unit) const {
  if (split_) return value_shards_.window(unit);
  return unit_view(values_, values_begin_[unit_index(units_, unit.range.begin)], unit, 0, unit.range.size());
}

Tensor ParameterStore::own_values(int64_t first, int64_t size) const {
  if (shards_values()) return value_shards_.kept(first, size);
  const size_t at = unit_index(units_, first);
  return unit_view(values_, values_begin_[at], units_[at], first - units_[at].range.begin, size);
}

void ParameterStore::keep_own(Lane& lane) {
  if (!shards_values()) return;
  for (const Unit& unit : units_) keep_own(lane, unit);
}

void ParameterStore::keep_own(Lane& lane, const Unit& unit) {
  const FlatRange own = shards_.own(unit);
  const Tensor kept = value_shards_.kept_of(unit);
  device::copy(lane, kept.raw(), rows(values_of(unit), own.begin, own.end).data, kept.bytes());
}

void ParameterStore::filled(const Parameter& p) {
  const auto of_unit = [&](const Parameter& other) { return other.unit == p.unit; };
  if (!split_ || &*std::find_if(list_.rbegin(), list_.rend(), of_unit) != &p) return;
  const Unit& unit = units_[p.unit];
  if (unit.range.size() == 0) return;
  Lane lane(device());
  keep_own(lane, unit);
  const Tensor window = values_of(unit);
  device::fill(lane, window.raw(), 0, window.bytes());
  lane.wait();
}

void ParameterStore::place_own(Lane& lane, const Unit& unit) const {
  if (!shards_values()) return;
  const FlatRange own = shards_.own(unit);
  const Tensor kept = value_shards_.kept_of(unit);
  device::copy(lane, rows(values_of(unit), own.begin, own.end).raw(), kept.data, kept.bytes());
}

void ParameterStore::split_values(Lane& lane) {
  if (!shards_values() || std::exchange(split_, true)) return;
  memory_.suspend(lane);
  window_memory_.resume();
  set_views();
}

void ParameterStore::join_values(Lane& lane) {
  if (!std::exchange(split_, false)) return;
  window_memory_.suspend(lane);
  memory_.resume();
  set_views();
}

Tensor ParameterStore::flat_grads() const {
  CHECK(!shards_grads(), "only shards of the gradients are kept");
  return grads_;
}

Tensor ParameterStore::grads_of(const Unit& unit) const {
  if (shards_grads()) return grad_shards_.window(unit);
  const int64_t begin = grads_begin_[unit_index(units_, unit.range.begin)];
  return rows(grads_, begin, begin + unit.range.size());
}

Tensor ParameterStore::grad_sums(int64_t first, int64_t size) const {
  if (shards_grads()) return grad_shards_.kept(first, size);
  const size_t unit = unit_index(units_, first);
  const int64_t begin = grads_begin_[unit] + first - units_[unit].range.begin;
  return rows(grads_, begin, begin + size);
}

int64_t ParameterStore::grad_bytes() const {
  return shards_grads() ? grad_shards_.all_kept().bytes() + grad_shards_.window_bytes() : grads_.bytes();
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

Tensor Parameter::grad_sum_beside(Ctx& c) {
  if (has_grad()) return grad_sum(c.lane);
  Tensor like = value;
  like.dtype = accumulate_dtype(value.dtype);
  const Tensor unused = c.scratch.like(like);
  device::fill(c.lane, unused.raw(), 0, unused.bytes());
  return unused;
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
  const int64_t padding = flat_size(p) - p.grad.size();
  if (padding > 0)
    device::fill(lane, static_cast<char*>(p.grad.raw()) + p.grad.bytes(), 0,
                 padding * dtype_size(p.grad.dtype));
}

void ParameterStore::move_to_host(Lane& lane) {
  host_values_ = host_memory_.like(values_);
  host_memory_.pin();
  device::copy_from_device(lane, host_values_.raw(), values_.data, values_.bytes());
  drop(lane);
}

void ParameterStore::fetch(Lane& lane) {
  if (std::exchange(fetched_, true)) return;
  memory_.resume();
  device::copy_to_device(lane, values_.raw(), host_values_.data, values_.bytes());
}

void ParameterStore::drop(Lane& lane) {
  if (host_values_.empty() || !std::exchange(fetched_, false)) return;
  memory_.suspend(lane);
}

void ParameterStore::clear_grads() {
  for (Parameter& p : list_) p.cleared = p.has_grad();
}

void ParameterStore::clear_sums(Lane& lane) {
  if (!shards_grads()) return;
  const Tensor& sums = grad_shards_.all_kept();
  device::fill(lane, sums.raw(), 0, sums.bytes());
}

void ParameterStore::begin_update(Lane& lane) {
  split_values(lane);
  resume_grads(lane);
  clear_grads();
  clear_sums(lane);
}

void ParameterStore::fill_grads(Lane& lane, const Unit& unit) {
  for (Parameter& p : list_)
    if (p.offset >= unit.range.begin && p.offset < unit.range.end) {
      p.grad_sum(lane);
      if (shards_grads()) clear_padding(lane, p);  // units have their gradients in the same window
    }
}

}  // namespace temper
