#include "src/train/packing.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/core/check.h"

namespace temper {
namespace {

/// Indices by descending length, ties by ascending index.
std::vector<int32_t> longest_first(std::span<const int64_t> lengths) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0) order.push_back(static_cast<int32_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return order;
}

/// First fit over micro-batches with room, found by binary search in a tree of remaining room.
class FirstFit {
 public:
  FirstFit(size_t max_bins, int64_t budget) : leaves_(1) {
    while (leaves_ < max_bins) leaves_ *= 2;
    room_.assign(2 * leaves_, budget);
  }
  /// Index of the first bin with room for `tokens`, which it takes.
  size_t place(int64_t tokens) {
    size_t node = 1;
    while (node < leaves_) node = room_[2 * node] >= tokens ? 2 * node : 2 * node + 1;
    room_[node] -= tokens;
    for (size_t up = node / 2; up >= 1; up /= 2) room_[up] = std::max(room_[2 * up], room_[2 * up + 1]);
    return node - leaves_;
  }

 private:
  size_t leaves_;
  std::vector<int64_t> room_;
};

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

int64_t pipeline_budget(std::span<const int64_t> lengths, int num_ranks, int stages, int64_t least,
                        int64_t most) {
  constexpr int64_t kForEachStage = 4;
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}),
                wanted = num_ranks * stages * kForEachStage;
  for (const int64_t length : lengths) least = std::max(least, length);
  return std::min(most, std::max(least, (tokens + wanted - 1) / wanted));
}

PackPlan plan_packing(std::span<const int64_t> lengths, int num_ranks, int64_t token_budget,
                      const CostModel& model) {
  PackPlan plan;
  plan.ranks.resize(static_cast<size_t>(num_ranks));
  std::vector<double> load(static_cast<size_t>(num_ranks), 0.0);
  std::vector<std::vector<int32_t>> share(static_cast<size_t>(num_ranks));
  int64_t tokens = 0;
  for (int32_t i : longest_first(lengths)) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    if (length > token_budget)
      fail(Exit::usage, {.what = "a sequence does not fit into a micro-batch",
                         .where = "train.max_tokens_per_microbatch",
                         .why = fmt::format("it has {} tokens, the budget is {}", length, token_budget),
                         .fix = fmt::format("set train.max_tokens_per_microbatch to {} or more", length)});
    const auto least = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[least] += model.cost(length);
    share[least].push_back(i);
    tokens += length;
  }
  for (size_t r = 0; r < share.size(); ++r) {
    FirstFit fit(std::max<size_t>(share[r].size(), 1), token_budget);
    for (int32_t i : share[r]) {
      const size_t bin = fit.place(lengths[static_cast<size_t>(i)]);
      if (bin >= plan.ranks[r].size()) plan.ranks[r].resize(bin + 1);
      plan.ranks[r][bin].push_back(i);
    }
    for (auto& microbatch : plan.ranks[r]) std::sort(microbatch.begin(), microbatch.end());
    plan.num_microbatches += static_cast<int64_t>(plan.ranks[r].size());
  }
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  if (tokens > 0) {
    plan.fill = static_cast<double>(tokens) / static_cast<double>(plan.num_microbatches * token_budget);
    plan.imbalance = *std::max_element(load.begin(), load.end()) * num_ranks / total - 1.0;
  }
  return plan;
}

std::string PackPlan::to_bytes() const {
  std::string bytes;
  append(bytes, num_microbatches);
  append(bytes, fill);
  append(bytes, imbalance);
  append(bytes, static_cast<int64_t>(ranks.size()));
  for (const auto& rank : ranks) {
    append(bytes, static_cast<int64_t>(rank.size()));
    for (const auto& microbatch : rank) {
      append(bytes, static_cast<int64_t>(microbatch.size()));
      for (int32_t i : microbatch) append(bytes, i);
    }
  }
  return bytes;
}

PackPlan PackPlan::from_bytes(const std::string& bytes) {
  size_t at = 0;
  const auto take = [&](auto& value) {
    CHECK(at + sizeof value <= bytes.size(), "packing plan of {} bytes is cut short", bytes.size());
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
  };
  const auto take_count = [&] {
    int64_t n = 0;
    take(n);
    CHECK(n >= 0 && n <= static_cast<int64_t>(bytes.size()), "packing plan holds a count of {}", n);
    return static_cast<size_t>(n);
  };
  PackPlan plan;
  take(plan.num_microbatches);
  take(plan.fill);
  take(plan.imbalance);
  plan.ranks.resize(take_count());
  for (auto& rank : plan.ranks) {
    rank.resize(take_count());
    for (auto& microbatch : rank) {
      microbatch.resize(take_count());
      for (int32_t& i : microbatch) take(i);
    }
  }
  return plan;
}

}  // namespace temper
