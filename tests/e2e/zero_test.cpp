// Whole runs whose trainer ranks keep only their shard of the gradients (ZeRO-2): they begin with the bits of
// one rank, make its gradients but for the order of sums, repeat and go on with their own, and leave state
// that any layout takes up.

#include "tests/e2e/layout_run.h"

namespace temper {
namespace {

Placement sharded(const std::string& name, int ranks, int tp = 1, int pp = 1) {
  return layout(name, ranks, tp, pp, "roles.trainer.zero=2");
}

const Placement kDp2 = sharded("dp2", 2), kDp4 = sharded("dp4", 4), kTp2Dp2 = sharded("tp2dp2", 4, 2),
                kPp2Dp2 = sharded("pp2dp2", 4, 1, 2), kDp1 = sharded("dp1", 2, 2);

using ZeroRun = LayoutRun;

/// Ranks have different numbers of micro-batches, some have none.
TEST_F(ZeroRun, BeginsWithTheBitsOfOneRank) {
  expect_like_one_rank({kDp2, kDp4, kTp2Dp2, kPp2Dp2}, kSmall);
  expect_like_one_rank({kDp2, kPp2Dp2}, kSmall + kDeepModel + "run.dtype=bf16");
  expect_like_one_rank({kDp4, kDp1}, kDeepModel + "train.samples_per_update=2");
}

TEST_F(ZeroRun, DumpsTheGradientsOfOneRank) {
  for (const std::string& model : {std::string(), kDeepModel}) {
    const std::string more = kSmall + model + "run.dtype=fp64 run.steps=2 --dump-gradients ";
    const std::string kind = model.empty() ? "tied" : "deep";
    for (const Placement& l : {kOne, kDp4, kTp2Dp2, kPp2Dp2}) {
      ASSERT_EQ(train(l, 0, kind + l.name, more + "gradients-" + kind + l.name), 0) << l.name << output();
      for (const char* update : {"000001", "000003"}) {
        const auto file = [&](const std::string& of) {
          return fmt::format("gradients-{}{}/update-{}.safetensors", kind, of, update);
        };
        EXPECT_LE(difference(file(l.name), file("one")), 1e-9) << l.name << ", " << kind << ", " << update;
      }
    }
  }
}

TEST_F(ZeroRun, RepeatsAndGoesOnAfterEveryStep) {
  ASSERT_EQ(train(kPp2Dp2, 1, "whole", kSmall), 0) << output();
  ASSERT_EQ(train(kPp2Dp2, 1, "again", kSmall), 0) << output();
  expect_same_run("again", "whole");
  for (int step = 2; step < kSteps; step += 2) {
    const std::string name = fmt::format("after-{}", step);
    copy_until("whole", name, step);
    ASSERT_EQ(train(kPp2Dp2, 1, name, kSmall), 0) << output();
    expect_same_run(name, "whole");
  }
}

TEST_F(ZeroRun, StateOfOneLayoutLoadsUnderAnother) {
  ASSERT_EQ(train(kDp4, 0, "run", kSmall), 0) << output();
  const std::string want = weights("run");
  for (const Placement& l : {kTp2Dp2, kOne, layout("plain", 2, 1, 1), kDp2}) {
    std::filesystem::remove_all(program_.path("runs/run/export"));
    ASSERT_EQ(train(l, 0, "run", kSmall), 0) << l.name << ": " << output();
    EXPECT_TRUE(weights("run") == want) << l.name;
  }
}

/// A rank holds a shard of the sums, and the gradients of one unit beside those of a tied embedding.
TEST_F(ZeroRun, TheGradientsTakeLessMemory) {
  const auto gradients = [&](const std::string& keys) {
    EXPECT_EQ(program_.run("check run.toml --json --ranks 4 model.path=deep " + keys), 0) << output();
    const Json report = parse_json(output(), "check");
    for (const Json& row : report["memory"])
      if (row["phase"] == "train") return row["parts"]["gradients"].get<int64_t>();
    return int64_t{0};
  };
  const int64_t whole = gradients(""), sharded = gradients("roles.trainer.zero=2");
  const int64_t unit = 6400 * 32 * 4;  // the largest one: embedding or head, in fp32
  EXPECT_GT(whole, 2 * unit);
  EXPECT_NEAR(static_cast<double>(sharded), static_cast<double>(whole / 4 + unit),
              0.01 * static_cast<double>(unit));
}

TEST_F(ZeroRun, OtherValuesAreRefused) {
  for (const char* value : {"0", "3"}) {
    EXPECT_EQ(program_.run(fmt::format("check run.toml roles.trainer.zero={}", value)), 64);
    EXPECT_TRUE(says("roles.trainer.zero")) << output();
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
