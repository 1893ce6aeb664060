// Trainers of adapters on 2 and 4 ranks of one start, each against one rank.

#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr Recompute kFull = Recompute::full, kSelective = Recompute::selective;

constexpr TrainedLayout kAdapters[] = {
    {.mesh = {.tp = 2}, .adapters = 3},
    {.mesh = {.tp = 4}, .shape = &kQwen2, .sequences = 1, .recompute = kSelective, .adapters = 4},
    {.mesh = {.tp = 2, .cp = 2}, .shape = &kQwen3Tied, .recompute = kFull, .adapters = 2},
    {.mesh = {.tp = 2, .dp = 2}, .shape = &kQwen2, .zero = 3, .adapters = 4},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3, .vpp = 2, .adapters = 4},
    {.mesh = {.pp = 2}, .shape = &kLlamaBiases, .vpp = 3, .sequences = 3, .recompute = kFull, .adapters = 1},
    {.mesh = {.cp = 2, .dp = 2}, .shape = &kLlama, .zero = 2, .adapters = 8},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen3Moe, .recompute = kSelective, .adapters = 4},
};

TEST_F(TrainedLayouts, AdaptersAreLikeThoseOfOneRank) { expect_like_one_rank(kAdapters); }

}  // namespace

Device device_of_layouts() { return Device::cpu; }

}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
