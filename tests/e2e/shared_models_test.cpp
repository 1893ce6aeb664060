// Whole runs whose trainer ranks share the model and its sums along every axis: they begin with the bits of
// one rank, make its gradients but for the order of sums, repeat and go on with their own. What is illegal is
// refused with what is legal. More runs of each axis: tests/layouts.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

const std::string kPrompts = "rollout.max_prompt_tokens=30 ";

/// Ragged micro-batches of one to three sequences, the longest of 38 tokens; with cp longer than one rank's
/// budget.
Placement shared(const std::string& name, int ranks, int tp, int cp, int pp, const std::string& more = "") {
  return layout(name, ranks, tp, pp,
                fmt::format("roles.trainer.cp={} train.max_tokens_per_microbatch={} {}", cp, 38 / cp, more));
}

const Placement kTp2Pp2 = shared("tp2pp2", 4, 2, 1, 2), kTp2Cp2 = shared("tp2cp2", 4, 2, 2, 1),
                kCp2Dp2 = shared("cp2dp2", 4, 1, 2, 1, "roles.trainer.zero=2"),
                kDp3 = shared("dp3", 3, 1, 1, 1, "roles.trainer.zero=3"),
                kParts = shared("parts", 2, 1, 1, 2, "roles.trainer.vpp=2"),
                kTp2Pp2Dp2 = shared("tp2pp2dp2", 8, 2, 1, 2, "roles.trainer.zero=3");

using SharedModels = LayoutRun;

/// Ranks have different numbers of micro-batches, some have none.
TEST_F(SharedModels, BeginWithTheBitsOfOneRank) {
  expect_like_one_rank({kTp2Pp2, kTp2Cp2, kDp3}, kPrompts);
  // Gradients of keys that ranks share are sums of bf16 parts.
  expect_like_one_rank({kCp2Dp2, kParts, kTp2Pp2Dp2}, kPrompts + kDeepModel + "run.dtype=bf16 run.steps=2 ",
                       0.01);
}

TEST_F(SharedModels, DumpTheGradientsOfOneRank) {
  const std::string more = kPrompts + kDeepModel + "run.dtype=fp64 run.steps=1 --dump-gradients ";
  std::vector<Run> runs;
  for (const Placement& l : {kOne, kTp2Pp2, kCp2Dp2, kDp3, kParts})
    runs.push_back({l, 0, l.name, more + "gradients-" + l.name});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const auto& [l, lag, name, keys] : runs) {
    const auto file = [&](const std::string& of) {
      return fmt::format("gradients-{}/update-000001.safetensors", of);
    };
    EXPECT_LE(difference(file(l.name), file("one")), 1e-10) << l.name;
  }
}

TEST_F(SharedModels, RepeatAndGoOn) { expect_repeats_and_goes_on(kTp2Pp2Dp2, kPrompts + kDeepModel); }

/// One of two ranks that are the reference together generates, too, ahead of the trainer: both take the steps
/// in the same order.
TEST_F(SharedModels, TeamsOfRanksThatGenerateAndOthers) {
  const Placement home{"home", 2, "roles.trainer.tp=2"},
      mixed{"mixed", 2, "roles.trainer.tp=2 roles.rollout.tp=1 roles.rollout.ranks='\"1\"'"};
  for (const int lag : {1, 2}) {
    for (const Placement& l : {home, mixed})
      ASSERT_EQ(train(l, lag, fmt::format("{}-{}", l.name, lag), kPrompts + "cluster.watchdog_seconds=60"), 0)
          << l.name << ": " << output();
    expect_same_run(fmt::format("mixed-{}", lag), fmt::format("home-{}", lag));
  }
}

TEST_F(SharedModels, SupervisedRuns) {
  const std::string more = kPrompts + "algorithm.name=sft algorithm.kl_coef=0 train.updates_per_step=1 ";
  std::vector<Run> runs;
  for (const Placement& l : {kOne, kTp2Pp2, kTp2Cp2, kDp3}) runs.push_back({l, 0, l.name, more});
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Placement& l : {kTp2Pp2, kTp2Cp2, kDp3})
    EXPECT_NEAR(program_.metrics(l.name)[0].at("train/loss").get<double>(),
                program_.metrics("one")[0].at("train/loss").get<double>(), 1e-6)
        << l.name;
}

TEST_F(SharedModels, IllegalTensorParallelNumbersAreRefused) {
  EXPECT_EQ(train({"three", 3, "roles.trainer.tp=3"}, 0, "three"), 64);
  EXPECT_TRUE(says("4 attention heads do not divide by 3")) << output();
  EXPECT_EQ(train({"four", 4, "roles.trainer.tp=3"}, 0, "four"), 64);
  EXPECT_TRUE(says("4 trainer ranks do not divide into groups of 3")) << output();
  EXPECT_TRUE(says("roles.trainer.tp = 1, 2 or 4")) << output();
}

TEST_F(SharedModels, IllegalStagesAreRefused) {
  EXPECT_EQ(train(layout("three", 4, 1, 3), 0, "three"), 64);
  EXPECT_TRUE(says("roles.trainer.pp") && says("= 1 or 2")) << output();
  EXPECT_EQ(train(layout("many", 4, 1, 4), 0, "many"), 64);
  EXPECT_TRUE(says("4 stages for 2 layers")) << output();
  for (const char* layers : {"[3]", "[1,2]", "[2,0]", "[1,1,0]", "[2147483647,2147483647]"}) {
    EXPECT_EQ(program_.run(fmt::format(
                  "check run.toml --ranks 2 roles.trainer.pp=2 'roles.trainer.stage_layers={}'", layers)),
              64);
    EXPECT_TRUE(says("add up to the 2 layers") && says("roles.trainer.stage_layers = [1, 1] or []"))
        << layers << output();
  }
}

TEST_F(SharedModels, IllegalPartsOfStagesAreRefused) {
  const std::string check = "check run.toml model.path=deep --ranks 2 ";
  EXPECT_EQ(program_.run(check + "roles.trainer.vpp=2"), 64);
  EXPECT_TRUE(says("need roles.trainer.pp > 1") && says("roles.trainer.vpp = 1")) << output();
  EXPECT_EQ(program_.run(check + "roles.trainer.pp=2 roles.trainer.vpp=3"), 64);
  EXPECT_TRUE(says("2 stages of 3 parts for 5 layers") && says("roles.trainer.vpp = 1 or 2")) << output();
  EXPECT_EQ(program_.run(check + "roles.trainer.pp=2 roles.trainer.vpp=2 roles.trainer.stage_layers=[3,2]"),
            64);
  EXPECT_TRUE(says("roles.trainer.stage_layers = [")) << output();
  EXPECT_EQ(program_.run(check +
                         "--all roles.trainer.pp=2 roles.trainer.vpp=2 roles.trainer.stage_layers=[1,2,1,1]"),
            0);
  EXPECT_TRUE(says("pp 2 vpp 2") && says("layers 0-0 1-2 3-3 4-4")) << output();
}

TEST_F(SharedModels, IllegalContextParallelNumbersAreRefused) {
  const auto refused = [&](int ranks, const std::string& keys) {
    EXPECT_EQ(program_.run(fmt::format("check run.toml --ranks {} {}", ranks, keys)), 64) << keys;
  };
  refused(6, "roles.trainer.cp=3");
  EXPECT_TRUE(says("4 attention heads do not divide by 3") && says("roles.trainer.cp = 1 or 2")) << output();
  refused(8, "roles.trainer.tp=2 roles.trainer.cp=4");
  EXPECT_TRUE(says("2 attention heads of a tp rank (4 / 2) do not divide by 4")) << output();
  refused(3, R"(roles.trainer.cp=2 roles.trainer.ranks='"0-1"' roles.reference.ranks='"2"')");
  EXPECT_TRUE(says("roles.reference.cp") &&
              says("1 reference ranks with tp = 1 do not divide into groups of 2 (as roles.trainer.cp)"))
      << output();
  refused(2, "roles.trainer.cp=2 rollout.max_prompt_tokens=30 train.max_tokens_per_microbatch=18");
  EXPECT_TRUE(says("38 tokens") && says("the budget is 18 on each of 2 ranks") && says("19")) << output();
}

/// Fewer tokens than ranks in a micro-batch.
TEST_F(SharedModels, PacksOfFewTokens) {
  program_.write("short.jsonl", R"({"prompt": "a", "response": ""})"
                                "\n"
                                R"({"prompt": "b", "response": "c"})"
                                "\n");
  const std::string more =
      "algorithm.name=sft algorithm.kl_coef=0 data.train=short.jsonl rollout.prompts_per_step=2 "
      "train.samples_per_update=1 rollout.samples_per_prompt=1 run.dtype=fp64 run.steps=3 "
      "checkpoint.export_hf_every=3 ";
  ASSERT_EQ(train(kOne, 0, "one", more), 0) << output();
  ASSERT_EQ(train({"cp4", 4, "roles.trainer.cp=4 train.max_tokens_per_microbatch=64"}, 0, "cp4", more), 0)
      << output();
  const std::vector<Json> got = program_.metrics("cp4"), want = program_.metrics("one");
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i].at("train/loss").get<double>(), want[i].at("train/loss").get<double>(), 1e-9) << i;
}

/// A rank holds a shard of the sums, and the gradients of one unit beside those of a tied embedding; of
/// weights the same, while they are trained.
TEST_F(SharedModels, ShardsOfGradientsAndWeightsTakeLessMemory) {
  const auto part = [&](const std::string& phase, const std::string& name, int zero) {
    EXPECT_EQ(program_.run(fmt::format("check run.toml --json --ranks 4 model.path=deep run.device=cuda "
                                       "run.dtype=bf16 roles.trainer.zero={} algorithm.kl_coef=0.1",
                                       zero)),
              0)
        << output();
    const Json report = parse_json(output(), "check");
    for (const Json& row : report["memory"])
      if (row["phase"] == phase) return row["parts"].value(name, int64_t{0});
    return int64_t{0};
  };
  const int64_t whole = part("train", "gradients", 1), sharded = part("train", "gradients", 2);
  const int64_t unit = 6400 * 32 * 4;  // the largest one: embedding or head, in fp32
  const int64_t layer = 32 * 16 * (4 + 2 * 2 + 4) + 3 * 64 * 32 + 2 * 32 + 2 * 16;  // one and the next
  EXPECT_GT(whole, 2 * unit);
  EXPECT_NEAR(static_cast<double>(sharded), static_cast<double>(whole / 4 + unit + 8 * layer),
              0.01 * static_cast<double>(unit));
  const int64_t weights = part("train", "weights", 1);
  EXPECT_EQ(part("generate", "weights", 3), weights);
  EXPECT_EQ(part("train", "weights", 3), 0);
  EXPECT_NEAR(static_cast<double>(part("train", "weight_shards", 3)), static_cast<double>(weights) / 4,
              0.01 * static_cast<double>(unit));
  EXPECT_NEAR(static_cast<double>(part("train", "weight_windows", 3)),
              static_cast<double>(unit) / 2 + 4.0 * static_cast<double>(layer),
              0.01 * static_cast<double>(unit));
  const auto reference = [&](int zero) {  // beside tables
    return part("reference", "reference_weights", zero) - part("reference", "rope_tables", zero);
  };
  EXPECT_EQ(reference(1), weights);
  EXPECT_EQ(reference(3), part("train", "weight_shards", 3) + part("train", "weight_windows", 3));
}

TEST_F(SharedModels, OtherShardingIsRefused) {
  for (const char* value : {"0", "4"}) {
    EXPECT_EQ(program_.run(fmt::format("check run.toml roles.trainer.zero={}", value)), 64);
    EXPECT_TRUE(says("legal: an integer, at least 1 and at most 3")) << output();
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
