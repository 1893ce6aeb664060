// Whole runs whose trainer ranks keep only their shard of the gradients (ZeRO-2), and of the weights while
// they train (ZeRO-3): they begin with the bits of one rank, make its gradients but for the order of sums,
// repeat and go on with their own, and leave state that any layout takes up.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

Placement sharded(const std::string& name, int zero, int ranks, int tp = 1, int pp = 1) {
  return layout(name, ranks, tp, pp, fmt::format("roles.trainer.zero={}", zero));
}

const Placement kDp2 = sharded("dp2", 3, 2), kDp4 = sharded("dp4", 2, 4),
                kTp2Dp2 = sharded("tp2dp2", 2, 4, 2), kPp2Dp2 = sharded("pp2dp2", 3, 4, 1, 2),
                kTp2Pp2Dp2 = sharded("tp2pp2dp2", 3, 8, 2, 2), kDp1 = sharded("dp1", 2, 2, 2),
                kSplit = sharded("split", 3, 4);

using ZeroRun = LayoutRun;

/// Ranks have different numbers of micro-batches, some have none.
TEST_F(ZeroRun, BeginsWithTheBitsOfOneRank) {
  expect_like_one_rank({kDp2, kDp4, kTp2Dp2, kPp2Dp2}, kSmall);
  expect_like_one_rank({kDp2, kPp2Dp2}, kSmall + kDeepModel + "run.dtype=bf16");
  expect_like_one_rank({kTp2Pp2Dp2}, kSmall + kDeepModel + "run.dtype=bf16 run.steps=2");
  expect_like_one_rank({kDp4, kDp1}, kDeepModel + "train.samples_per_update=2");
}

TEST_F(ZeroRun, DumpsTheGradientsOfOneRank) {
  for (const std::string& model : {std::string(), kDeepModel}) {
    const std::string more = kSmall + model + "run.dtype=fp64 run.steps=2 --dump-gradients ";
    const std::string kind = model.empty() ? "tied" : "deep";
    for (const Placement& l : {kOne, kSplit, kTp2Dp2, kPp2Dp2}) {
      ASSERT_EQ(train(l, 0, kind + l.name, more + "gradients-" + kind + l.name), 0) << l.name << output();
      for (const char* update : {"000001", "000003"}) {
        const auto file = [&](const std::string& of) {
          return fmt::format("gradients-{}{}/update-{}.safetensors", kind, of, update);
        };
        EXPECT_LE(difference(file(l.name), file("one")), 1e-10) << l.name << ", " << kind << ", " << update;
      }
    }
  }
}

/// Where a rank has one micro-batch, or no other rank has its parameters: the order of sums is the same,
/// whatever is kept of them. Also with a lag, with what is computed again instead of kept, and after a change
/// from one to the other.
TEST_F(ZeroRun, HasTheBitsOfWholeGradientsWhereNothingElseIsSummed) {
  const struct {
    Placement placement;
    int lag;
    std::string more;
  } runs[] = {{kSplit, 0, "train.recompute.granularity=full"},
              {kTp2Pp2Dp2, 1, "optimizer.grad_clip=0.01"},
              {kPp2Dp2, 1, kDeepModel + "run.dtype=bf16 optimizer.state=bf16"},
              {kDp1, 0, kSmall}};
  for (const auto& [placement, lag, keys] : runs) {
    const std::string more = "run.steps=2 checkpoint.export_hf_every=2 " + keys;
    ASSERT_EQ(train(placement, lag, "shards", more), 0) << placement.name << ": " << output();
    ASSERT_EQ(train(placement, lag, "whole", more + " roles.trainer.zero=1"), 0)
        << placement.name << ": " << output();
    expect_same_run("shards", "whole", 2);
    for (const auto& [from, zero] : {std::pair{"shards", 1}, {"whole", 2}, {"whole", 3}}) {
      if (placement.name != kSplit.name) break;
      copy_until(from, "changed", 1, 2);
      ASSERT_EQ(train(placement, lag, "changed", fmt::format("{} roles.trainer.zero={}", more, zero)), 0)
          << output();
      expect_same_run("changed", from, 2);
      std::filesystem::remove_all(program_.path("runs/changed"));
    }
    for (const char* name : {"shards", "whole"})
      std::filesystem::remove_all(program_.path(std::string("runs/") + name));
  }
}

TEST_F(ZeroRun, RepeatsAndGoesOn) { expect_repeats_and_goes_on(kPp2Dp2, kSmall, 2); }

TEST_F(ZeroRun, StateOfOneLayoutLoadsUnderAnother) {
  ASSERT_EQ(train(kDp4, 0, "run", kSmall), 0) << output();
  const std::string want = weights("run");
  for (const Placement& l : {kTp2Dp2, kOne, kSplit, layout("plain", 2, 1, 1), kDp2}) {
    std::filesystem::remove_all(program_.path("runs/run/export"));
    ASSERT_EQ(train(l, 0, "run", kSmall), 0) << l.name << ": " << output();
    EXPECT_TRUE(weights("run") == want) << l.name;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
