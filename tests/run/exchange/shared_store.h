#pragma once
// Parameters of every kind, shared among ranks, whose elements are a function of their number and a seed,
// whoever has them.

#include <vector>

#include "src/nn/parameter.h"
#include "tests/support/random.h"

namespace temper {

/// What models are made of: norms, shared rows in parts, heads of which there may be fewer than ranks, a
/// vocabulary of three chunks and one of less than one, numbers of heads in a wide type.
inline std::vector<ParamSpec> shared_specs() {
  return {
      {.name = "vocabulary",
       .parts = {{"v", 2 * kVocabularyChunk + 7}},
       .shape = {2 * kVocabularyChunk + 7, 1},
       .unit = "a",
       .shard = Shard::vocabulary},
      {.name = "norm", .parts = {{"n", 13}}, .shape = {13}, .unit = "b"},
      {.name = "qkv",
       .parts = {{"q", 24, 8}, {"k", 6, 2}, {"v", 6, 2}},
       .shape = {36, 5},
       .unit = "b",
       .shard = Shard::rows},
      {.name = "gate,up",
       .parts = {{"g", 16}, {"u", 16}},
       .shape = {32, 3},
       .unit = "b",
       .shard = Shard::rows},
      {.name = "decays",
       .parts = {{"d", 8, 8}},
       .shape = {8},
       .unit = "b",
       .shard = Shard::rows,
       .wide = true},
      {.name = "one", .parts = {{"o", 1}}, .shape = {1, 4}, .unit = "c"},
      {.name = "small vocabulary",
       .parts = {{"s", 50}},
       .shape = {50, 2},
       .unit = "c",
       .shard = Shard::vocabulary},
  };
}

/// The values of `place`, in host memory.
template <class T>
void fill_values(ParameterStore& store, const Parameter& p, uint64_t seed) {
  const std::vector<double> random = normal_values(p.spec.size(), seed);
  const int64_t width = p.spec.size() / p.spec.shape[0];
  std::vector<T> values(static_cast<size_t>(p.value.size()));
  for (const RowSpan& span : p.spans)
    for (int64_t e = 0; e < span.rows * width; ++e)
      values[static_cast<size_t>(span.own * width + e)] =
          static_cast<T>(static_cast<float>(random[static_cast<size_t>(span.whole * width + e)]));
  device::upload(store.device(), p.value.raw(), values.data(), p.value.bytes());
}

inline void fill_store(ParameterStore& store, uint64_t seed) {
  uint64_t number = 0;
  for (const Parameter& p : store.list()) {
    if (p.value.dtype == DType::f64) fill_values<double>(store, p, seed + number++);
    if (p.value.dtype == DType::f32) fill_values<float>(store, p, seed + number++);
    if (p.value.dtype == DType::bf16) fill_values<bf16>(store, p, seed + number++);
  }
}

inline void make_store(ParameterStore& store, const ShardPlace& place, DType dtype, uint64_t seed,
                       Device device = Device::cpu, bool with_gradients = false) {
  for (ParamSpec& spec : shared_specs()) store.add(std::move(spec), place);
  store.allocate(dtype, with_gradients, device);
  fill_store(store, seed);
}

}  // namespace temper
