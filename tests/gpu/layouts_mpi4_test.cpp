// Trainers on 1, 2 and 4 ranks, with a GPU each where there are four, else on one: each against one rank
// there.

#include "tests/gpu/gpu_ranks.h"
#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr Recompute kFull = Recompute::full, kSelective = Recompute::selective;

/// What a sanitizer sees (tools/sanitize_gpu.sh).
constexpr TrainedLayout kEveryAxis[] = {
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3Tied, .recompute = kFull},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen3Tied, .vpp = 2},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen2, .zero = 3, .sequences = 3},
};
constexpr TrainedLayout kMore[] = {
    {.mesh = {.tp = 2}},
    {.mesh = {.tp = 2}, .shape = &kQwen2, .recompute = kFull},
    {.mesh = {.tp = 4}, .shape = &kQwen3Tied, .recompute = kSelective},
    {.mesh = {.cp = 2}},
    {.mesh = {.cp = 2}, .shape = &kLlama, .recompute = kSelective},
    {.mesh = {.cp = 4}, .shape = &kQwen3Tied, .zero = 2},
    {.mesh = {.dp = 2}, .shape = &kLlama, .aggregation = "seq-mean-token-mean"},
    {.mesh = {.dp = 4}, .shape = &kQwen2, .zero = 3, .sequences = 3},
    {.mesh = {.pp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.pp = 2}, .shape = &kLlamaBiases, .vpp = 3, .sequences = 3, .budget = 40, .recompute = kFull},
    {.mesh = {.pp = 4}, .shape = &kQwen2},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen3Tied, .zero = 3},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen2, .sequences = 1},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kLlama, .zero = 3},
    {.mesh = {.cp = 2, .pp = 2}, .zero = 2, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3, .vpp = 2},
};

/// Experts on all ranks, over tp, and over ranks that have other tokens.
constexpr TrainedLayout kExperts[] = {
    {.mesh = {.tp = 2}, .shape = &kQwen3Moe},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kQwen2Moe, .zero = 3},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kOneExpertOfMany, .recompute = kSelective},
    {.mesh = {.tp = 4, .ep = 1}, .shape = &kQwen2Moe, .recompute = kFull},
    {.mesh = {.dp = 4, .ep = 4}, .shape = &kOneExpertOfMany, .zero = 3, .sequences = 3},
    {.mesh = {.tp = 2, .dp = 2, .ep = 4}, .shape = &kOneExpertOfMany, .zero = 2},
    {.mesh = {.cp = 2, .dp = 2, .ep = 2}, .shape = &kQwen3Moe, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .shape = &kQwen3Moe, .sequences = 3},
};

TEST_F(TrainedLayouts, EveryAxis) { expect_like_one_rank(kEveryAxis); }
TEST_F(TrainedLayouts, WithExperts) { expect_like_one_rank(kExperts); }
TEST_F(TrainedLayouts, AndMore) { expect_like_one_rank(kMore); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cuda; }

int main(int argc, char** argv) {
  if (!temper::select_own_gpu_or_first()) return 1;
  return temper::run_tests_on_ranks(argc, argv, 4);
}
