// Whole runs whose experts are spread over ranks, beside the run of one rank: they begin with its bits and
// make its gradients but for the order of sums, whatever shares the rest of the layers; they repeat and go on
// with their own bits, and leave state that any layout takes up.

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

/// The second of four layers is dense.
constexpr const char* kExperts = R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "num_experts": 8,
  "num_experts_per_tok": 2, "norm_topk_prob": true, "mlp_only_layers": [1], "num_hidden_layers": 4,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 6400,
  "max_position_embeddings": 64, "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
  "initializer_range": 0.2, "eos_token_id": 2})";
const std::string kModel = "model.path=experts ";

struct Axes {
  int tp = 1, cp = 1, dp = 1, pp = 1, ep = 1, zero = 1, vpp = 1;
  std::string recompute = "none";
};

Placement layout_of(const Axes& a, const std::string& more = "") {
  return {fmt::format("tp{}cp{}dp{}pp{}ep{}z{}v{}", a.tp, a.cp, a.dp, a.pp, a.ep, a.zero, a.vpp),
          a.tp * a.cp * a.dp * a.pp,
          fmt::format("roles.trainer.tp={} roles.trainer.cp={} roles.trainer.pp={} roles.trainer.vpp={} "
                      "roles.trainer.ep={} roles.trainer.zero={} train.recompute.granularity={} {}",
                      a.tp, a.cp, a.pp, a.vpp, a.ep, a.zero, a.recompute, more)};
}

/// They take 2, 4 and 8 ranks.
const Axes kLayouts[] = {
    {.tp = 2, .ep = 1},
    {.tp = 2, .ep = 2},
    {.cp = 2, .ep = 2},
    {.dp = 2, .ep = 2},
    {.dp = 2, .ep = 2, .zero = 2},
    {.dp = 2, .ep = 2, .zero = 3},
    {.pp = 2, .ep = 1, .vpp = 2},
    {.tp = 4, .ep = 1, .recompute = "selective"},
    {.tp = 4, .ep = 2},
    {.tp = 4, .ep = 4},
    {.cp = 4, .ep = 2, .zero = 3},
    {.cp = 4, .ep = 4, .recompute = "full"},
    {.dp = 4, .ep = 2},
    {.dp = 4, .ep = 4, .zero = 2},
    {.tp = 2, .dp = 2, .ep = 1, .zero = 3},
    {.tp = 2, .dp = 2, .ep = 2, .zero = 3},
    {.tp = 2, .cp = 2, .ep = 4},
    {.tp = 2, .pp = 2, .ep = 2},
    {.cp = 2, .dp = 2, .ep = 4, .recompute = "full"},
    {.dp = 2, .pp = 2, .ep = 2, .zero = 3, .vpp = 2},
    {.dp = 4, .pp = 2, .ep = 4, .vpp = 2},
    {.tp = 2, .dp = 2, .pp = 2, .ep = 4, .zero = 2},
    {.tp = 2, .cp = 2, .dp = 2, .ep = 4, .zero = 3},
    {.tp = 2, .dp = 4, .ep = 2, .recompute = "full"},
};

class ExpertsRun : public LayoutRun {
 protected:
  void SetUp() override {
    LayoutRun::SetUp();
    ASSERT_EQ(program_.init_model("experts", kExperts), 0) << output();
  }
};

TEST_F(ExpertsRun, BeginsWithTheBitsOfOneRank) {
  std::vector<Placement> layouts;
  for (const Axes& axes : kLayouts) layouts.push_back(layout_of(axes));
  expect_like_one_rank(layouts, kSmall + kModel + "run.dtype=bf16 run.steps=2 ", 1e-2);
}

/// Ranks with a micro-batch less than others, or without any, of few tokens.
TEST_F(ExpertsRun, DumpsTheGradientsOfOneRank) {
  const std::string more = kSmall + kModel + "run.dtype=fp64 run.steps=2 --dump-gradients gradients-";
  std::vector<Run> runs = {{kOne, 0, "one", more + "one"}};
  for (const Axes& axes : kLayouts) {
    const Placement l = layout_of(axes);
    runs.push_back({l, 0, l.name, more + l.name});
  }
  ASSERT_EQ(train_each(runs), 0) << output();
  for (const Run& run : runs)
    for (const char* update : {"000001", "000003"}) {
      const auto file = [&](const std::string& of) {
        return fmt::format("gradients-{}/update-{}.safetensors", of, update);
      };
      EXPECT_LE(difference(file(run.name), file("one")), 1e-10) << run.name << ", " << update;
    }
  for (const Run& run : runs)
    for (size_t step = 0; step < 2; ++step) {
      const double want = program_.metrics("one").at(step).at("actor/grad_norm").get<double>();
      EXPECT_NEAR(program_.metrics(run.name).at(step).at("actor/grad_norm").get<double>(), want, 1e-10 * want)
          << run.name << ", step " << step + 1;
    }
}

/// Together and apart, at once and with a lag; experts of the rollout over other ranks than the trainer's.
TEST_F(ExpertsRun, RolloutAndReferenceHaveExpertsOfTheirOwn) {
  const std::string home = "roles.rollout.ranks='\"0-3\"' roles.reference.ranks='\"0-3\"' ",
                    apart =
                        "roles.rollout.ranks='\"4-7\"' roles.reference.ranks='\"4-7\"' "
                        "roles.trainer.ranks='\"0-3\"' ";
  const std::string kinds[] = {"roles.rollout.tp=1 roles.reference.tp=1 roles.reference.ep=2",
                               "roles.rollout.tp=4 roles.rollout.ep=2 roles.reference.tp=2",
                               "roles.rollout.tp=2 roles.reference.ep=4 roles.reference.zero=3"};
  for (const int lag : {0, 1}) {
    std::vector<Run> runs;
    for (const std::string& kind : kinds) {
      runs.push_back({layout_of({.dp = 4, .ep = 4}, home + kind), lag, fmt::format("home-{}", runs.size()),
                      kSmall + kModel});
      Placement other = layout_of({.dp = 4, .ep = 4}, apart + kind);
      other.ranks = 8;
      runs.push_back({other, lag, fmt::format("apart-{}", runs.size()), kSmall + kModel});
    }
    ASSERT_EQ(train_each(runs), 0) << output();
    for (const Run& run : runs) {
      expect_same_run(run.name, runs.front().name);
      for (const Json& line : program_.metrics(run.name))
        if (lag == 0) {
          EXPECT_EQ(line.at("actor/rollout_logprob_diff_max").get<double>(), 0.0) << run.name;
        }
    }
    for (const Run& run : runs) std::filesystem::remove_all(program_.path("runs/" + run.name));
  }
}

TEST_F(ExpertsRun, RepeatsAndGoesOn) {
  expect_repeats_and_goes_on(layout_of({.tp = 2, .dp = 2, .ep = 4, .zero = 3}), kSmall + kModel, 2);
}

TEST_F(ExpertsRun, StateOfOneLayoutLoadsUnderAnother) {
  const Axes from[] = {{.dp = 4, .ep = 4, .zero = 3},
                       {.tp = 2, .dp = 2, .ep = 1},
                       {.dp = 2, .pp = 2, .ep = 2}},
             to[] = {{.tp = 4, .ep = 4}, {.dp = 2, .ep = 2, .zero = 2}, {.tp = 2, .pp = 2, .ep = 1}};
  const std::string more = kModel + kSmall + "run.dtype=fp64 optimizer.schedule=constant ",
                    dump = "--dump-gradients gradients-";
  ASSERT_EQ(train(kOne, 0, "one", more + dump + "one"), 0) << output();
  const std::string last_update = list_directory(program_.path("gradients-one")).back();
  for (const Axes& axes : from) {
    const Placement saved = layout_of(axes);
    ASSERT_EQ(train(saved, 0, saved.name, more + "run.steps=2"), 0) << output();
    std::vector<Run> runs;
    for (const Axes& other : to) {
      const Placement l = layout_of(other);
      const std::string name = saved.name + "-" + l.name;
      std::filesystem::copy(program_.path("runs/" + saved.name), program_.path("runs/" + name),
                            std::filesystem::copy_options::recursive);
      runs.push_back({l, 0, name, more + dump + name});
    }
    ASSERT_EQ(train_each(runs), 0) << output();
    for (const Run& run : runs) {
      // The last gradients are those of weights and moments that all steps before have made.
      const auto file = [&](const std::string& of) {
        return fmt::format("gradients-{}/{}", of, last_update);
      };
      EXPECT_LE(difference(file(run.name), file("one")), 1e-8) << run.name;
    }
  }
}

TEST_F(ExpertsRun, WhatDoesNotFitIsRefusedWithWhatDoes) {
  const auto refused = [&](const std::string& keys, const std::string& why) {
    EXPECT_EQ(train({"four", 4, keys}, 0, "refused", kModel), 64) << keys;
    EXPECT_TRUE(says(why)) << keys << output();
  };
  refused("roles.trainer.ep=3", "8 experts do not divide by 3");
  refused("roles.trainer.ep=8", "4 ranks of a stage do not divide into groups of 8");
  refused("roles.trainer.tp=4 roles.rollout.tp=1 roles.rollout.ep=2",
          "ranks that attend apart keep all experts: 2 does not divide roles.rollout.tp = 1");
  EXPECT_EQ(train({"dense", 2, "roles.trainer.ep=2"}, 0, "refused"), 64);
  EXPECT_TRUE(says("the model has no experts")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
