#pragma once
// A made-up training state of logical tensors, cut over ranks like the optimizer cuts it: by ranges of all
// elements, so that most tensors lie on some of the ranks only.

#include <algorithm>
#include <string>
#include <vector>

#include "src/core/digest/hash.h"
#include "src/core/rng.h"
#include "src/io/checkpoint/checkpoint.h"

namespace temper {

struct LogicalTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

inline std::vector<LogicalTensor> logical_tensors() {
  return {{"param/embed", {7, 11}, DType::f32},
          {"opt/m/embed", {7, 11}, DType::f32},
          {"opt/v/embed", {7, 11}, DType::f64},
          {"param/layers.0.attn.wqkv", {3, 5, 4}, DType::f64},
          {"param/norm", {1}, DType::f32},
          {"param/head", {130}, DType::bf16},
          {"opt/m/layers.0.wide", {33, 9}, DType::bf16}};
}

/// Every bit pattern may occur, NaN included: a checkpoint keeps bits.
inline std::string logical_bytes(const LogicalTensor& t, uint64_t seed) {
  std::string bytes(static_cast<size_t>(t.size() * dtype_size(t.dtype)), '\0');
  const auto which = static_cast<uint32_t>(std::hash<std::string>{}(t.name));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(philox({static_cast<uint32_t>(i), which, 0, 0}, seed)[0]);
  return bytes;
}

/// A piece of a tensor.
struct Cut {
  LogicalTensor tensor;
  FlatRange range;
};

/// What rank `rank` holds of all elements, one tensor after the other.
inline std::vector<Cut> flat_cuts(const std::vector<LogicalTensor>& tensors, int rank, int ranks) {
  int64_t total = 0, offset = 0;
  for (const LogicalTensor& t : tensors) total += t.size();
  const FlatRange shard = shard_range(total, rank, ranks);
  std::vector<Cut> cuts;
  for (const LogicalTensor& t : tensors) {
    const FlatRange range{std::max(shard.begin - offset, int64_t{0}), std::min(shard.end - offset, t.size())};
    offset += t.size();
    if (range.size() > 0) cuts.push_back({t, range});
  }
  return cuts;
}

/// Each tensor is `fused` parts of equal size, and rank `rank` holds its share of each part.
inline std::vector<Cut> fused_cuts(const std::vector<LogicalTensor>& tensors, int64_t fused, int rank,
                                   int ranks) {
  std::vector<Cut> cuts;
  for (const LogicalTensor& t : tensors)
    for (int64_t part = 0; part < fused; ++part) {
      const int64_t begin = t.size() * part / fused, end = t.size() * (part + 1) / fused;
      const FlatRange share = shard_range(end - begin, rank, ranks);
      cuts.push_back({t, {begin + share.begin, begin + share.end}});
    }
  return cuts;
}

/// The pieces of one rank with the memory behind them.
class RankState {
 public:
  RankState(const std::vector<LogicalTensor>& tensors, int rank, int ranks)
      : RankState(flat_cuts(tensors, rank, ranks)) {}
  explicit RankState(const std::vector<Cut>& cuts) {
    memory_.reserve(cuts.size());
    for (const auto& [t, range] : cuts) {
      memory_.emplace_back(static_cast<size_t>(range.size() * dtype_size(t.dtype)), '\x5a');
      pieces_.push_back(
          {t.name, t.shape, range, make_tensor(memory_.back().data(), t.dtype, {range.size()})});
    }
  }
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;

  const std::vector<StateTensor>& pieces() const { return pieces_; }
  std::string bytes(size_t i) const { return memory_[i]; }
  void fill(const std::vector<LogicalTensor>& tensors, uint64_t seed) {
    for (size_t i = 0; i < pieces_.size(); ++i)
      memory_[i].replace(0, std::string::npos, want(tensors, i, seed));
    for (size_t i = 0; i < pieces_.size(); ++i) pieces_[i].data.data = memory_[i].data();
  }
  /// What piece i holds when it was filled with `seed`.
  std::string want(const std::vector<LogicalTensor>& tensors, size_t i, uint64_t seed) const {
    const StateTensor& p = pieces_[i];
    const auto t =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& l) { return l.name == p.name; });
    const int64_t item = dtype_size(t->dtype);
    return logical_bytes(*t, seed).substr(static_cast<size_t>(p.range.begin * item), memory_[i].size());
  }

 private:
  std::vector<std::string> memory_;
  std::vector<StateTensor> pieces_;
};

inline Json checkpoint_meta() {
  return {
      {"optimizer_updates", 12}, {"data_position", 345}, {"dtype", "fp32"}, {"config", "[run]\nsteps = 3\n"}};
}

}  // namespace temper
