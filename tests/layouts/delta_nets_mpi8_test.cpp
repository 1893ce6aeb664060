// Models with gated delta nets over 2, 4 and 8 ranks, each against one rank; sequences go over several
// chunks of the rule.

#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr auto kFull = Recompute::full, kSelective = Recompute::selective;
constexpr TrainedShape kManyKeys{"hybrid", 8, 8, 6, kPart, true, true, false, 0, 0, 0, -1, 3, 8, 8};

constexpr TrainedLayout kLayouts[] = {
    {.mesh = {.tp = 2}, .shape = &kHybrid, .recompute = kSelective},
    {.mesh = {.cp = 2}, .shape = &kHybridOfThree, .recompute = kFull},
    {.mesh = {.dp = 2}, .shape = &kManyKeys, .zero = 3},
    {.mesh = {.pp = 2}, .shape = &kHybridOfThree, .vpp = 3},
    {.mesh = {.tp = 4}, .shape = &kHybridWide},
    {.mesh = {.tp = 4}, .shape = &kManyKeys, .recompute = kFull},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kHybridWide, .recompute = kSelective},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kHybrid, .zero = 2},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kHybridOfThree, .vpp = 2, .recompute = kFull},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kManyKeys, .zero = 3, .sequences = 3},
    {.mesh = {.cp = 2, .pp = 2}, .shape = &kHybridWide},
    {.mesh = {.tp = 4, .cp = 2}, .shape = &kHybridWide},
    {.mesh = {.tp = 4, .dp = 2}, .shape = &kManyKeys, .zero = 3, .recompute = kFull},
    {.mesh = {.tp = 2, .cp = 2, .dp = 2}, .shape = &kManyKeys, .zero = 3},
    {.mesh = {.tp = 2, .cp = 2, .pp = 2}, .shape = &kHybridWide, .zero = 2, .recompute = kSelective},
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}, .shape = &kHybridOfThree, .zero = 3, .vpp = 2},
};

/// Experts after the gated delta nets.
constexpr TrainedLayout kExperts[] = {
    {.mesh = {.tp = 4}, .shape = &kHybridMoe, .recompute = kSelective},
    {.mesh = {.dp = 4, .ep = 2}, .shape = &kHybridMoe, .zero = 3, .recompute = kSelective},
    {.mesh = {.cp = 2, .pp = 2, .ep = 2}, .shape = &kHybridMoe, .frozen = "*.mlp.gate.*"},
    {.mesh = {.tp = 4, .dp = 2, .ep = 8}, .shape = &kHybridMoe, .recompute = kFull},
    {.mesh = {.tp = 2, .cp = 2, .dp = 2, .ep = 4}, .shape = &kHybridMoe, .zero = 3},
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}, .shape = &kHybridMoeOfThree, .zero = 3, .vpp = 2, .aux = true},
    {.mesh = {.dp = 4, .pp = 2, .ep = 2}, .shape = &kHybridMoeOfThree, .zero = 2, .sequences = 3},
};

TEST_F(TrainedLayouts, WithGatedDeltaNetsAndExperts) { expect_like_one_rank(over_several_chunks(kExperts)); }
TEST_F(TrainedLayouts, WithGatedDeltaNets) { expect_like_one_rank(over_several_chunks(kLayouts)); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cpu; }

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 8); }
