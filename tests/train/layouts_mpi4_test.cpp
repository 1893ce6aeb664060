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
    {.mesh = {.dp = 2}, .zero = 2, .sequences = 1},
    {.mesh = {.pp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.pp = 2}, .shape = &kLlama, .sequences = 2, .budget = 100},
};

constexpr TrainedLayout kOfFour[] = {
    {.mesh = {.tp = 4}, .recompute = kSelective},
    {.mesh = {.tp = 4}, .shape = &kQwen3Tied},
    {.mesh = {.cp = 4}, .shape = &kQwen2, .zero = 2},
    {.mesh = {.cp = 4}, .shape = &kQwen3Tied, .recompute = kFull},
    {.mesh = {.dp = 4}, .shape = &kQwen2, .zero = 2, .sequences = 3},
    {.mesh = {.pp = 4}, .shape = &kQwen2},
    {.mesh = {.pp = 4}, .shape = &kLlamaBiases, .sequences = 3, .budget = 40},
    {.mesh = {.tp = 2, .cp = 2}},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3Tied, .recompute = kFull},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen2, .aggregation = "seq-mean-token-mean"},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen3Tied, .zero = 2},
    {.mesh = {.tp = 2, .pp = 2}},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen3Tied, .recompute = kSelective},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kLlama, .zero = 2},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kQwen2, .sequences = 1},
    {.mesh = {.cp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 2},
    {.mesh = {.cp = 2, .pp = 2}, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen2, .zero = 2},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kLlamaBiases, .sequences = 1},
};

TEST_F(TrainedLayouts, OfTwoRanks) { expect_like_one_rank(kOfTwo); }
TEST_F(TrainedLayouts, OfFourRanks) { expect_like_one_rank(kOfFour); }

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
