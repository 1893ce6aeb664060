// Trainers on 8 ranks of one start, each against one rank.

#include "tests/train/layouts.h"

namespace temper {
namespace {

constexpr TrainedLayout kOfEight[] = {
    {.mesh = {.tp = 8}, .recompute = Recompute::full},
    {.mesh = {.cp = 8}, .shape = &kQwen2},
    {.mesh = {.dp = 8}, .shape = &kQwen3Tied, .zero = 3, .sequences = 5},
    {.mesh = {.pp = 8}, .shape = &kLlamaBiases, .sequences = 4},
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}},
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3},
    {.mesh = {.tp = 2, .cp = 2, .dp = 2}, .shape = &kQwen2},
    {.mesh = {.tp = 2, .cp = 2, .dp = 2}, .zero = 2, .recompute = Recompute::selective},
    {.mesh = {.cp = 2, .dp = 2, .pp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.cp = 2, .dp = 2, .pp = 2}, .shape = &kLlama, .zero = 3, .sequences = 3},
    {.mesh = {.tp = 2, .cp = 2, .pp = 2}, .shape = &kQwen3Tied, .recompute = Recompute::full},
    // One of two tp ranks has no row of the vocabulary, nor any gradient of it to share.
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}, .shape = &kTiedPart, .zero = 3, .sequences = 3},
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}, .shape = &kTiedPart, .zero = 2, .sequences = 3},
    {.mesh = {.tp = 2, .cp = 2, .pp = 2}, .shape = &kTiedPart, .zero = 2, .sequences = 3},
    {.mesh = {.tp = 2, .cp = 2, .pp = 2}, .shape = &kTiedPart, .zero = 3, .sequences = 3},
    {.mesh = {.tp = 2, .dp = 2, .pp = 2}, .shape = &kQwen3Tied, .zero = 3, .vpp = 2},
    {.mesh = {.tp = 4, .cp = 2}, .shape = &kQwen2},
    {.mesh = {.tp = 4, .pp = 2}, .shape = &kQwen3Tied},
    {.mesh = {.cp = 4, .dp = 2}, .shape = &kLlama, .aggregation = "seq-mean-token-mean"},
};

/// Some of each layer, and the head.
TEST_F(TrainedLayouts, FrozenBytesStayThroughManyUpdates) {
  expect_frozen({.mesh = {.tp = 2, .dp = 2, .pp = 2},
                 .shape = &kLlamaBiases,
                 .zero = 3,
                 .frozen = "model.layers.*.self_attn.*"},
                50);
}

TEST_F(TrainedLayouts, OfEightRanks) { expect_like_one_rank(kOfEight); }

}  // namespace
}  // namespace temper

temper::Device temper::device_of_layouts() { return temper::Device::cpu; }

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 8); }
