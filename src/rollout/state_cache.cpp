#include "src/rollout/state_cache.h"

#include <utility>

#include "src/nn/hybrid/delta_net.h"
#include "src/rollout/pool_entries.h"

namespace temper {
namespace {

int64_t delta_layers(const ModelConfig& config, const LayerRanges& parts) {
  int64_t layers = 0;
  for (const LayerRange& part : parts)
    for (int64_t i = part.begin; i < part.end; ++i) layers += config.delta.layers.contains(i) ? 1 : 0;
  return layers;
}

bool fills_chunk(int64_t cached, int64_t rows) {
  return (cached + rows) / kDeltaChunk > cached / kDeltaChunk;
}

}  // namespace

StateShape::StateShape(const Model& model)
    : StateShape(model.config(), model.parts(), model.splits().tp_ranks(), model.dtype()) {}

StateShape::StateShape(const ModelConfig& config, const LayerRanges& parts, int tp_ranks, DType type)
    : layers(delta_layers(config, parts)),
      heads(delta_shape(config.delta, tp_ranks)),
      taps(config.delta.taps),
      storage(type) {}

int64_t StateShape::tail_bytes() const {
  const int64_t rows = window_size() + kDeltaChunk * (heads.key_width() + heads.value_width()),
                decays = kDeltaChunk * heads.value_heads;
  return layers * (rows * dtype_size(storage) + decays * dtype_size(accumulate_dtype(storage)));
}

StateCache::StateCache(const StateShape& shape, int64_t sequences, bool poison, Lane& lane)
    : lane_(lane), poison_(poison), memory_(lane.device(), MemoryUse::cache) {
  const DeltaShape& heads = shape.heads;
  const DType type = shape.storage, wide = accumulate_dtype(type);
  const int64_t layers = shape.layers,
                tails = sequences + (like_gpu(lane.device()) ? 1 : 0);  // and the scratch tail
  windows_ = memory_.make({layers, tails, shape.window_size()}, type);
  keys_ = memory_.make({layers, tails, kDeltaChunk * heads.key_width()}, type);
  writes_ = memory_.make({layers, tails, kDeltaChunk * heads.value_width()}, type);
  decays_ = memory_.make({layers, tails, kDeltaChunk * heads.value_heads}, wide);
  states_ = memory_.make({layers, sequences, shape.slot_size()}, wide);
  references_.assign(static_cast<size_t>(sequences), 0);
  for (int64_t i = sequences; i-- > 0;) {
    tails_.push_back(static_cast<int32_t>(i));
    slots_.push_back(static_cast<int32_t>(i));
    if (!poison_) continue;
    for (const Tensor& pool : tail_pools()) poison_entry(lane_, pool, tails_.back());
    poison_entry(lane_, states_, slots_.back());
  }
}

/// What it has before its last chunk is nothing, or others read it.
bool StateCache::writes_elsewhere(const HeldState& s) const {
  return s.slot < 0 || references_[static_cast<size_t>(s.slot)] > 1;
}

bool StateCache::can_advance(const HeldState& s, int64_t cached, int64_t rows) const {
  return !fills_chunk(cached, rows) || !writes_elsewhere(s) || !slots_.empty();
}

void StateCache::advance(HeldState& s, int64_t cached, int64_t rows) {
  if (s.empty()) {
    CHECK(!tails_.empty() && cached == 0, "no free tail of {} for a sequence with {} rows", sequences(),
          cached);
    s.tail = tails_.back();
    tails_.pop_back();
  }
  s.from = s.slot;
  if (!fills_chunk(cached, rows) || !writes_elsewhere(s)) return;
  CHECK(s.left < 0, "a sequence leaves slots {} and {} at once", s.left, s.slot);
  s.left = s.slot;
  s.slot = take_slot();
}

void StateCache::settle(HeldState& s) {
  if (s.left >= 0) release_slot(std::exchange(s.left, -1));
}

void StateCache::fork(const HeldState& from, HeldState& to) {
  CHECK(!tails_.empty() && !from.empty() && to.empty(), "fork of a state, {} free tails of {}", tails_.size(),
        sequences());
  to = {.tail = tails_.back(), .slot = from.slot};
  tails_.pop_back();
  for (const Tensor& pool : tail_pools()) copy_entry(lane_, pool, to.tail, from.tail);
  if (to.slot >= 0) ++references_[static_cast<size_t>(to.slot)];
}

void StateCache::drop(HeldState& s) {
  if (s.empty()) return;
  settle(s);
  if (s.slot >= 0) release_slot(s.slot);
  if (poison_)
    for (const Tensor& pool : tail_pools()) poison_entry(lane_, pool, s.tail);
  tails_.push_back(s.tail);
  s = {};
}

int32_t StateCache::take_slot() {
  CHECK(!slots_.empty(), "no free slot of {}", sequences());
  const int32_t slot = slots_.back();
  slots_.pop_back();
  references_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void StateCache::release_slot(int32_t slot) {
  int32_t& count = references_[static_cast<size_t>(slot)];
  CHECK(count > 0, "slot {} is free already", slot);
  if (--count > 0) return;
  if (poison_) poison_entry(lane_, states_, slot);
  slots_.push_back(slot);
}

DeltaPages StateCache::view(CTensor tails, CTensor from, CTensor to, CTensor lengths) const {
  return {.windows = windows_,
          .keys = keys_,
          .writes = writes_,
          .decays = decays_,
          .states = states_,
          .tails = tails,
          .from = from,
          .to = to,
          .lengths = lengths};
}

}  // namespace temper
