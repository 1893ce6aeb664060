// Trainers of models with gated delta nets on 2 and 4 ranks, with a GPU each where there are four, else on
// one: each against one rank there.

#include "tests/gpu/gpu_ranks.h"
#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr Recompute kFull = Recompute::full, kSelective = Recompute::selective;

constexpr TrainedLayout kLayouts[] = {
    {.mesh = {.tp = 2}, .shape = &kHybrid, .recompute = kSelective},
    {.mesh = {.cp = 2}, .shape = &kHybridOfThree, .recompute = kFull},
    {.mesh = {.dp = 2}, .shape = &kHybrid, .zero = 3},
    {.mesh = {.pp = 2}, .shape = &kHybridOfThree, .vpp = 3},
    {.mesh = {.tp = 4}, .shape = &kHybridWide},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kHybridWide, .recompute = kSelective},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kHybridOfThree, .vpp = 2, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kHybrid, .zero = 3},
};

TEST_F(TrainedLayouts, WithGatedDeltaNets) { expect_like_one_rank(over_several_chunks(kLayouts)); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cuda; }

int main(int argc, char** argv) {
  if (!temper::select_own_gpu_or_first()) return 1;
  return temper::run_tests_on_ranks(argc, argv, 4);
}
