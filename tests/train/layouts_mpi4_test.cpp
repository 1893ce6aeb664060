// Trainers on 2 and 4 ranks of one start, each against one rank.

#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr Recompute kFull = Recompute::full, kSelective = Recompute::selective;

/// Each axis alone.
constexpr TrainedLayout kOfTwo[] = {
    {.mesh = {.tp = 2}},
    {.mesh = {.tp = 2}, .shape = &kQwen2, .recompute = kFull},
    {.mesh = {.cp = 2}},
    {.mesh = {.cp = 2}, .shape = &kLlama, .recompute = kSelective},
    {.mesh = {.dp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.dp = 2}, .shape = &kLlama, .zero = 2, .aggregation = "seq-mean-token-mean"},
    {.mesh = {.dp = 2}, .zero = 3, .sequences = 1},
    {.mesh = {.pp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.pp = 2}, .shape = &kLlama, .sequences = 2, .budget = 100},
    {.mesh = {.pp = 2}, .shape = &kQwen3Tied, .vpp = 2},
    {.mesh = {.pp = 2}, .shape = &kLlamaBiases, .vpp = 3, .sequences = 3, .budget = 40, .recompute = kFull},
    {.mesh = {.pp = 2}, .shape = &kLlamaBiases, .vpp = 4, .recompute = kSelective},
};

constexpr TrainedLayout kOfFour[] = {
    {.mesh = {.tp = 4}, .recompute = kSelective},
    {.mesh = {.tp = 4}, .shape = &kQwen3Tied},
    {.mesh = {.tp = 4}, .sequences = 1, .recompute = kSelective},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen2, .sequences = 1, .recompute = kFull},
    {.mesh = {.cp = 4}, .shape = &kQwen2, .zero = 2},
    {.mesh = {.cp = 4}, .shape = &kQwen3Tied, .recompute = kFull},
    {.mesh = {.dp = 4}, .shape = &kQwen2, .zero = 3, .sequences = 3},
    {.mesh = {.pp = 4}, .shape = &kQwen2},
    {.mesh = {.pp = 4}, .shape = &kLlamaBiases, .sequences = 3, .budget = 40},
    {.mesh = {.tp = 2, .cp = 2}},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3Tied, .recompute = kFull},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen2, .aggregation = "seq-mean-token-mean"},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen3Tied, .zero = 3},
    {.mesh = {.tp = 2, .pp = 2}},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen3Tied, .recompute = kSelective},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kLlama, .zero = 3, .recompute = kFull},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kQwen2, .sequences = 1},
    {.mesh = {.cp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 2},
    {.mesh = {.cp = 2, .pp = 2}, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen2, .zero = 2},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kLlamaBiases, .sequences = 1},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3, .vpp = 2},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen2, .zero = 2, .vpp = 2, .sequences = 5},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kLlamaBiases, .vpp = 2, .sequences = 1},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen3Tied, .vpp = 2},
    {.mesh = {.cp = 2, .pp = 2}, .shape = &kQwen2, .vpp = 2},
    {.mesh = {.pp = 4}, .shape = &kLlamaBiases, .vpp = 2},
};

/// Embeddings, heads of their own, whole layers, some of each layer, all layers.
constexpr TrainedLayout kFrozen[] = {
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen3Tied, .zero = 3, .frozen = "model.embed_tokens.weight"},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3, .frozen = "model.layers.*norm*"},
    {.mesh = {.dp = 2, .pp = 2}, .zero = 3, .recompute = kFull, .frozen = "*o_proj*"},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen2, .recompute = kSelective, .frozen = "model.layers.0.*"},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kLlama, .zero = 2, .frozen = "lm_head.weight"},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3, .frozen = "*.mlp.down_proj.*"},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kLlamaBiases, .vpp = 2, .frozen = "*bias"},
    {.mesh = {.dp = 4}, .shape = &kQwen2, .zero = 3, .sequences = 3, .frozen = "model.layers.*"},
    {.mesh = {.tp = 4}, .shape = &kQwen2, .frozen = "model.norm.weight"},
};

/// Experts on all ranks, over tp, and over ranks that have other tokens.
constexpr TrainedLayout kExperts[] = {
    {.mesh = {.tp = 2, .ep = 1}, .shape = &kQwen3Moe},
    {.mesh = {.tp = 2}, .shape = &kQwen3Moe},
    {.mesh = {.cp = 2, .ep = 2}, .shape = &kQwen3Moe, .recompute = kSelective},
    {.mesh = {.dp = 2, .ep = 2}, .shape = &kQwen3Moe, .sequences = 3},
    {.mesh = {.dp = 2, .ep = 2}, .shape = &kQwen3Moe, .zero = 3, .sequences = 1, .recompute = kFull},
    {.mesh = {.tp = 2, .dp = 2, .ep = 4}, .shape = &kOneExpertOfMany, .zero = 2},
    {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .shape = &kQwen3Moe, .sequences = 3},
    {.mesh = {.tp = 4, .ep = 2}, .shape = &kQwen3Moe, .zero = 3},
    {.mesh = {.tp = 4, .ep = 1}, .shape = &kQwen2Moe, .sequences = 1, .recompute = kSelective},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kQwen3Moe, .zero = 3},
    {.mesh = {.pp = 2}, .shape = &kQwen2Moe, .vpp = 2, .recompute = kFull},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kOneExpertOfMany, .recompute = kSelective},
    {.mesh = {.tp = 2, .dp = 2, .ep = 1}, .shape = &kQwen2Moe, .zero = 3, .sequences = 3},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3Moe, .recompute = kFull},
    {.mesh = {.dp = 4}, .shape = &kOneExpertOfMany, .zero = 2, .aggregation = "seq-mean-token-mean"},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Moe, .zero = 3, .frozen = "*.mlp.gate.*"},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3Moe, .aux = true},
    {.mesh = {.dp = 2, .pp = 2},
     .shape = &kQwen2Moe,
     .zero = 3,
     .sequences = 3,
     .recompute = kFull,
     .aux = true},
    {.mesh = {.tp = 2, .pp = 2, .ep = 1},
     .shape = &kQwen2Moe,
     .vpp = 2,
     .recompute = kSelective,
     .aux = true},
};

/// Layers with a state: a rank has whole ones, of its heads. With fewer key heads than ranks, too.
constexpr TrainedLayout kHybrids[] = {
    {.mesh = {.dp = 2}, .shape = &kHybrid, .recompute = kFull},
    {.mesh = {.dp = 2}, .shape = &kHybrid, .zero = 3, .sequences = 1, .recompute = kSelective},
    {.mesh = {.dp = 4}, .shape = &kHybridOfThree, .zero = 2, .sequences = 5},
    {.mesh = {.pp = 2}, .shape = &kHybrid},
    {.mesh = {.pp = 2}, .shape = &kHybridOfThree, .vpp = 3, .budget = 40, .recompute = kSelective},
    {.mesh = {.pp = 4}, .shape = &kHybridOfThree, .sequences = 3},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kHybridOfThree, .zero = 3, .vpp = 2, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kHybrid, .zero = 2, .frozen = "*linear_attn*"},
    {.mesh = {.tp = 2}, .shape = &kHybrid, .recompute = kSelective},
    {.mesh = {.tp = 4}, .shape = &kHybridOfThree, .sequences = 1, .recompute = kFull},
    {.mesh = {.cp = 2}, .shape = &kHybridOfThree, .recompute = kFull},
    {.mesh = {.cp = 4}, .shape = &kHybrid, .sequences = 3, .recompute = kSelective},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kHybrid},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kHybridOfThree, .zero = 3, .sequences = 5},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kHybrid, .zero = 2, .aggregation = "seq-mean-token-mean"},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kHybridOfThree, .vpp = 2, .recompute = kSelective},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kHybridOfThree, .frozen = "*linear_attn.in_proj*"},
};

/// States and experts in the same layers.
constexpr TrainedLayout kHybridExperts[] = {
    {.mesh = {.tp = 2}, .shape = &kHybridMoe, .recompute = kFull},
    {.mesh = {.tp = 2, .ep = 1}, .shape = &kHybridMoeOfThree, .sequences = 3},
    {.mesh = {.cp = 2, .ep = 2}, .shape = &kHybridMoe, .recompute = kSelective},
    {.mesh = {.dp = 2, .ep = 2}, .shape = &kHybridMoe, .zero = 3, .sequences = 1},
    {.mesh = {.tp = 2, .cp = 2, .ep = 4}, .shape = &kHybridMoe, .aux = true},
    {.mesh = {.tp = 2, .dp = 2, .ep = 4}, .shape = &kHybridMoe, .zero = 2, .sequences = 5},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kHybridMoeOfThree, .zero = 3, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .shape = &kHybridMoeOfThree, .zero = 3, .vpp = 2},
};

/// Legal ones of 4 ranks.
class RandomLayouts : public TrainedLayouts {
 protected:
  static constexpr int64_t kLayouts = 24;

  RandomLayouts() {
    for (int64_t index = 0; std::ssize(layouts_) < kLayouts; ++index) add(index);
  }
  void add(int64_t index) {
    int64_t next = 0;
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(uniform_value(5, index * 100 + next++) * static_cast<double>(n));
    };
    const auto axis = [&](int most) { return std::min(1 << below(3), most); };
    GridShape mesh{.tp = axis(4)};
    mesh.cp = axis(4 / mesh.tp);
    mesh.pp = axis(4 / mesh.tp / mesh.cp);
    mesh.dp = 4 / mesh.tp / mesh.cp / mesh.pp;
    const int64_t kv = std::array{1, 2, 4, 8, 3}[static_cast<size_t>(below(5))], heads = 4 * kv;
    const TrainedShape shape{
        "random",      heads,         kv,           4 + below(3), below(3) == 0 ? kChunks : kPart,
        below(2) == 0, below(2) == 0, below(2) == 0};
    const AttentionShape own{heads / mesh.tp, std::max<int64_t>(1, kv / mesh.tp), 8};
    if ((kv % mesh.tp != 0 && mesh.tp % kv != 0) || own.q_heads % mesh.cp != 0 ||
        (own.kv_heads % mesh.cp != 0 && mesh.cp % own.kv_heads != 0))
      return;
    layouts_.push_back({.mesh = mesh,
                        .shape = &shapes_.emplace_back(shape),
                        .zero = 1 + static_cast<int>(below(3)),
                        .vpp = mesh.pp == 2 ? 1 + static_cast<int>(below(2)) : 1,
                        .sequences = static_cast<int32_t>(1 + below(11)),
                        .budget = 20 + 10 * below(5),
                        .recompute = static_cast<Recompute>(below(3))});
  }
  std::deque<TrainedShape> shapes_;
  std::vector<TrainedLayout> layouts_;
};

TEST_F(TrainedLayouts, OfTwoRanks) { expect_like_one_rank(kOfTwo); }
TEST_F(TrainedLayouts, OfFourRanks) { expect_like_one_rank(kOfFour); }
TEST_F(TrainedLayouts, WithWhatIsNotTrained) { expect_like_one_rank(kFrozen); }
TEST_F(TrainedLayouts, WithExperts) { expect_like_one_rank(kExperts); }
TEST_F(TrainedLayouts, WithGatedDeltaNets) { expect_like_one_rank(kHybrids); }
TEST_F(TrainedLayouts, WithGatedDeltaNetsAndExperts) { expect_like_one_rank(kHybridExperts); }
TEST_F(RandomLayouts, OfFourRanks) { expect_like_one_rank(layouts_); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cpu; }

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
