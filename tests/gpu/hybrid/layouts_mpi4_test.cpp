// Trainers of models with gated delta nets on 2 and 4 ranks, with a GPU each where there are four, else on
// one: each against one rank there.

#include "tests/gpu/gpu_ranks.h"
#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr Recompute kFull = Recompute::full, kSelective = Recompute::selective;
/// More value heads, for ranks of tp and cp together.
constexpr TrainedShape kWide{"hybrid", 16, 4, 4, kPart, false, true, false, 0, 0, 0, -1, 4, 2, 8};

constexpr TrainedLayout kLayouts[] = {
    {.mesh = {.tp = 2}, .shape = &kHybrid, .recompute = kSelective},
    {.mesh = {.cp = 2}, .shape = &kHybridOfThree, .recompute = kFull},
    {.mesh = {.dp = 2}, .shape = &kHybrid, .zero = 3},
    {.mesh = {.pp = 2}, .shape = &kHybridOfThree, .vpp = 3},
    {.mesh = {.tp = 4}, .shape = &kWide},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kWide, .recompute = kSelective},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kHybridOfThree, .vpp = 2, .recompute = kFull},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kHybrid, .zero = 3},
};

/// Sequences go over several chunks of the rule.
std::vector<TrainedLayout> long_ones() {
  std::vector<TrainedLayout> all(std::begin(kLayouts), std::end(kLayouts));
  for (TrainedLayout& l : all) l.stretch = 9, l.budget = 160;
  return all;
}

TEST_F(TrainedLayouts, WithGatedDeltaNets) { expect_like_one_rank(long_ones()); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cuda; }

int main(int argc, char** argv) {
  if (!temper::select_own_gpu_or_first()) return 1;
  return temper::run_tests_on_ranks(argc, argv, 4);
}
