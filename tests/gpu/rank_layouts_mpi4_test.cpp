// Trainers over 2 and 4 ranks of several hosts, each against one rank. All layouts on a GPU:
// layouts_mpi4_test.

#include "tests/gpu/gpu_ranks.h"
#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr TrainedLayout kOverHosts[] = {
    {.mesh = {.tp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.tp = 4}, .shape = &kQwen2},
    {.mesh = {.cp = 4}, .shape = &kQwen3Tied, .zero = 2},
    {.mesh = {.dp = 4}, .shape = &kQwen2, .zero = 3, .sequences = 3},
    {.mesh = {.pp = 4}, .shape = &kLlamaBiases, .vpp = 2},
    {.mesh = {.tp = 2, .cp = 2}, .recompute = Recompute::full},
    {.mesh = {.tp = 2, .pp = 2}, .shape = &kQwen3Tied, .vpp = 2},
    {.mesh = {.dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3},
};

TEST_F(TrainedLayouts, OverHosts) { expect_like_one_rank(kOverHosts); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cuda; }

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 4, /*per_host=*/2); }
