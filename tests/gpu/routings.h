#pragma once
// Which experts take which tokens, for tests and benches of experts: choices drawn on the host, sorted on the
// GPU.

#include <algorithm>
#include <numeric>
#include <random>

#include "src/ops/experts.h"
#include "tests/gpu/gpu_support.h"

namespace temper {

using Ids = std::vector<int32_t>;

/// K different ids of E for each of T tokens, ascending, in proportion to the weights.
inline Ids drawn_choices(int64_t T, int64_t K, const std::vector<double>& weights, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> wait;
  std::vector<std::pair<double, int32_t>> order(weights.size());
  Ids ids;
  for (int64_t t = 0; t < T; ++t) {
    for (size_t e = 0; e < weights.size(); ++e)
      order[e] = {wait(random) / weights[e], static_cast<int32_t>(e)};
    std::nth_element(order.begin(), order.begin() + K - 1, order.end());
    const size_t first = ids.size();
    for (int64_t j = 0; j < K; ++j) ids.push_back(order[static_cast<size_t>(j)].second);
    std::sort(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  }
  return ids;
}
inline std::vector<double> even_weights(int64_t E) {
  return std::vector<double>(static_cast<size_t>(E), 1.0);
}
/// The r-th expert is chosen in proportion to 1 / r.
inline std::vector<double> zipf_weights(int64_t E) {
  std::vector<double> weights = even_weights(E);
  for (int64_t e = 0; e < E; ++e) weights[static_cast<size_t>(e)] = 1.0 / static_cast<double>(e + 1);
  std::shuffle(weights.begin(), weights.end(), std::mt19937_64(5));
  return weights;
}
/// One choice of each token: so many tokens take each expert, in no order.
inline Ids counted_choices(const std::vector<int64_t>& counts, uint64_t seed) {
  Ids ids;
  for (size_t e = 0; e < counts.size(); ++e)
    ids.insert(ids.end(), static_cast<size_t>(counts[e]), static_cast<int32_t>(e));
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
  return ids;
}

/// Sorted choices in scratch memory of a context.
struct Routing {
  int64_t E, K, R;
  CTensor ids;
  Tensor offsets, tokens, places;
  std::vector<int32_t> begin;  // the offsets on the host

  Routing(Ctx& c, const Ids& of, int64_t choices, int64_t experts)
      : E(experts),
        K(choices),
        R(static_cast<int64_t>(of.size())),
        ids(to_device(c, view_of(of.data(), {R / K, K}))),
        offsets(c.scratch.make({E + 1}, DType::i32)),
        tokens(c.scratch.make({R}, DType::i32)),
        places(c.scratch.make({R / K, K}, DType::i32)) {
    sort_by_expert(c, offsets, tokens, places, ids);
    begin = to_host<int32_t>(c, offsets);
  }
};

}  // namespace temper
