// Runs of a mixture of experts with keys of [moe]: frozen routers keep their bits, the coefficient of the
// model's file changes none, losses of routers are told.

#include "src/io/hf/safetensors.h"
#include "tests/support/run_fixture.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

constexpr const char* kModel = R"({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
  "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8,
  "shared_expert_intermediate_size": 8, "num_experts": 6, "num_experts_per_tok": 2,
  "norm_topk_prob": false, "mlp_only_layers": [1], "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2, "router_aux_loss_coef": COEF})";

constexpr const char* kSft = R"(
run.name = "run"
run.steps = 3
algorithm.name = "sft"
train.samples_per_update = 4
checkpoint.export_hf_every = 1000
)";
constexpr const char* kGrpo = R"(
run.name = "grpo"
run.steps = 2
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 8
rollout.kv_memory = 4000000
rollout.stop = ["e", "a", "o"]
reward.functions = [{name = "length", weight = -1, max_tokens = 8, buffer_tokens = 7}]
)";

class MoeRun : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kSft, sums(20));
    program_.write("grpo.toml", run_config(kGrpo));
    make_model("model", "0.001");
  }
  void make_model(const std::string& name, const std::string& coefficient) const {
    std::string config = kModel;
    config.replace(config.find("COEF"), 4, coefficient);
    std::filesystem::remove_all(program_.path(name));
    ASSERT_EQ(program_.init_model(name, config.c_str()), 0) << output();
  }
  std::string tensor(const std::string& file, const std::string& name) const {
    const SafetensorsFile from(program_.path(file), file);
    const TensorInfo& info = from.tensors().at(name);
    std::string bytes(static_cast<size_t>(info.end - info.begin), '\0');
    from.read(info.begin, info.end - info.begin, bytes.data());
    return bytes;
  }
};

TEST_F(MoeRun, FrozenRoutersKeepTheirBits) {
  ASSERT_EQ(
      program_.run("train run.toml run.steps=100 moe.router.freeze=true checkpoint.export_hf_every=100"), 0)
      << output();
  const std::string now = "runs/run/export/step-000100/model.safetensors", first = "model/model.safetensors";
  for (const char* layer : {"0", "2"})
    for (const char* name : {"gate", "shared_expert_gate", "experts.3.up_proj"}) {
      const std::string of = fmt::format("model.layers.{}.mlp.{}.weight", layer, name);
      EXPECT_EQ(tensor(now, of) == tensor(first, of), std::string(name).find("gate") != std::string::npos)
          << of;
    }
}

TEST_F(MoeRun, TheCoefficientOfTheFileIsToldAndNotUsed) {
  make_model("plain", "0");
  for (const char* config : {"run.toml", "grpo.toml"}) {
    ASSERT_EQ(program_.run(fmt::format("train {} run.name=with", config)), 0) << output();
    EXPECT_TRUE(says("auxiliary losses of routers: none (router_aux_loss_coef = 0.001 of its config.json"))
        << output();
    ASSERT_EQ(program_.run(fmt::format("train {} run.name=without model.path=plain", config)), 0) << output();
    EXPECT_TRUE(says("auxiliary losses of routers: none") && !says("router_aux_loss_coef")) << output();
    EXPECT_EQ(program_.fixed_metrics("with"), program_.fixed_metrics("without"));
    EXPECT_EQ(first_difference(newest_state(program_.path("runs/with")),
                               newest_state(program_.path("runs/without"))),
              "");
    for (const char* name : {"with", "without"})
      std::filesystem::remove_all(program_.path(fmt::format("runs/{}", name)));
  }
}

TEST_F(MoeRun, LossesOfRoutersAreTrainedAndReported) {
  const std::string losses = R"( 'moe.aux_loss=["sequence","global","z"]' moe.aux_coef=0.5 moe.z_coef=0.1)";
  ASSERT_EQ(program_.run("check run.toml" + losses), 0) << output();
  EXPECT_TRUE(says("auxiliary losses of its routers: sequence (0.5), global (0.5), z (0.1)")) << output();
  ASSERT_EQ(program_.run("train run.toml run.name=none"), 0) << output();
  ASSERT_EQ(program_.run("train run.toml run.name=one" + losses), 0) << output();
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=two roles.trainer.tp=2" + losses), 0) << output();
  const auto value = [&](const std::string& run, const char* name) {
    const Json first = program_.metrics(run).front();
    return first.contains(name) ? first.at(name).get<double>() : 0.0;
  };
  EXPECT_GT(value("one", "moe/aux_loss"), 2 * 2 * 0.5);
  EXPECT_GT(value("one", "moe/z_loss"), 0);
  EXPECT_NEAR(value("two", "moe/aux_loss"), value("one", "moe/aux_loss"), 1e-5);
  EXPECT_NEAR(value("two", "train/grad_norm"), value("one", "train/grad_norm"), 1e-4);
  EXPECT_GT(value("one", "train/grad_norm"), 1.01 * value("none", "train/grad_norm"));
  EXPECT_EQ(value("none", "moe/aux_loss"), 0);
  EXPECT_EQ(program_.run(R"(check run.toml moe.router.freeze=true)" + losses), static_cast<int>(Exit::usage));
  EXPECT_TRUE(says("moe.aux_loss") && says("are frozen by moe.router.freeze")) << output();
  EXPECT_EQ(program_.run("check run.toml 'moe.aux_loss=[\"batch\"]'"), static_cast<int>(Exit::usage));
  EXPECT_TRUE(says("would depend on how sequences are packed")) << output();
}

/// On policy the trainer's routers choose what was recorded; older weights do not.
TEST_F(MoeRun, RoutesAreRecordedComparedAndFollowed) {
  const auto mismatches = [&](const std::string& run) {
    std::vector<double> values;
    for (const Json& line : program_.metrics(run))
      values.push_back(line.contains("moe/routing_mismatch") ? line.at("moe/routing_mismatch").get<double>()
                                                             : -1);
    return values;
  };
  const std::string grpo = "train grpo.toml optimizer.lr=0.05 run.steps=4 ";
  ASSERT_EQ(program_.run(grpo + "run.name=free"), 0) << output();
  ASSERT_EQ(program_.run(grpo + "run.name=on moe.record_routes=true"), 0) << output();
  EXPECT_EQ(mismatches("free"), std::vector<double>(4, -1));
  EXPECT_EQ(mismatches("on"), std::vector<double>(4, 0));
  EXPECT_EQ(newest_state(program_.path("runs/on")), newest_state(program_.path("runs/free")));
  // Neighbours that share a sequence have the routes of their own tokens.
  ASSERT_EQ(program_.run_ranks(2, grpo + "run.name=cp roles.trainer.cp=2 moe.record_routes=true"), 0)
      << output();
  ASSERT_EQ(program_.run_ranks(4, grpo + "run.name=all roles.trainer.tp=2 roles.trainer.cp=2 "
                                         "roles.trainer.ep=2 moe.record_routes=true"),
            0)
      << output();
  for (const char* run : {"cp", "all"}) EXPECT_EQ(mismatches(run), std::vector<double>(4, 0)) << run;
  const std::string lag = "run.max_policy_lag=2 moe.replay=rollout ";
  ASSERT_EQ(program_.run(grpo + "run.name=lag " + lag), 0) << output();
  ASSERT_EQ(program_.run_ranks(2, grpo + "run.name=two roles.trainer.tp=2 " + lag), 0) << output();
  for (const char* run : {"lag", "two"}) {
    const std::vector<double> of = mismatches(run);
    EXPECT_EQ(of.front(), 0);
    EXPECT_GT(of.back(), 0);
  }

  const std::string file = "runs/lag/rollouts/step-000001.jsonl",
                    again = "train grpo.toml run.name=again --replay ";
  ASSERT_EQ(program_.run(again + file + " moe.replay=rollout"), 0) << output();
  EXPECT_EQ(mismatches("again"), std::vector<double>{0});
  EXPECT_EQ(
      program_.run(
          "train grpo.toml run.name=x moe.replay=rollout --replay runs/free/rollouts/step-000001.jsonl"),
      static_cast<int>(Exit::data));
  EXPECT_TRUE(says("routes") && says("moe.replay")) << output();
  std::string line = program_.read(file);
  const std::string experts = "\"experts\":6";
  ASSERT_NE(line.find(experts), std::string::npos);
  line.replace(line.find(experts), experts.size(), "\"experts\":8");
  program_.write("other.jsonl", line);
  EXPECT_EQ(program_.run("train grpo.toml run.name=y moe.replay=rollout --replay other.jsonl"),
            static_cast<int>(Exit::data));
  EXPECT_TRUE(says("of another model") && says("2 of 6 experts in 2 layers")) << output();
}

/// Trainer ranks generate for a validation, each with prompts of its own, and send tokens to the experts of
/// others: what they make has the bits of one rank, with ranks that have nothing to generate, with stages and
/// with tp.
TEST_F(MoeRun, ValidationGeneratesWithExpertsOverRanks) {
  const std::string train =
      "train grpo.toml run.steps=1 'validation.data=[\"data.jsonl\"]' validation.at_start=true "
      "validation.max_prompts=3 ";
  const std::vector<RanksRun> layouts{{2, "roles.trainer.ep=2"},
                                      {4, "roles.trainer.ep=2 roles.trainer.pp=2"},
                                      {6, "roles.trainer.ep=6 roles.trainer.tp=2"}};
  ASSERT_EQ(program_.run(train + "run.name=one"), 0) << output();
  const std::string file = "validation/step-000000.jsonl", want = program_.read("runs/one/" + file);
  EXPECT_EQ(std::count(want.begin(), want.end(), '\n'), 3);
  for (const auto& [ranks, keys] : layouts) {
    ASSERT_EQ(program_.run_ranks(ranks, train + keys + " run.name=" + std::to_string(ranks)), 0) << output();
    EXPECT_EQ(program_.read(fmt::format("runs/{}/{}", ranks, file)), want) << keys;
  }
  const std::string eval =
      "eval grpo.toml 'validation.data=[\"data.jsonl\"]' validation.max_prompts=3 "
      "--out results.jsonl ";
  ASSERT_EQ(program_.run(eval), 0) << output();
  const std::string results = program_.read("results.jsonl");
  std::filesystem::remove(program_.path("results.jsonl"));
  ASSERT_EQ(program_.run_ranks(2, eval + "roles.trainer.ep=2"), 0) << output();
  EXPECT_EQ(program_.read("results.jsonl"), results);
}

/// A cut response goes on with the routes that it has; the check counts their bytes.
TEST_F(MoeRun, RoutesOfPartialRolloutsAndTheirMemory) {
  const std::string grpo = "grpo.toml rollout.tokens_per_step=3 run.steps=5 moe.record_routes=";
  ASSERT_EQ(program_.run("train " + grpo + "true run.name=whole"), 0) << output();
  const auto bytes = [&](const std::string& arguments) {
    EXPECT_EQ(program_.shell(program_.temper() + " check " + arguments + " --json > plan.json"), 0)
        << output();
    const Json plan = program_.json_lines("plan.json").front();
    for (const Json& row : plan.at("memory"))
      if (row.at("phase") == "train") return row.at("parts").at("trajectories").get<int64_t>();
    return int64_t{0};
  };
  EXPECT_EQ(bytes(grpo + "true") - bytes(grpo + "false"), 6 * 256 * 2 * 2)
      << "samples x tokens x layers x choices";
  EXPECT_EQ(program_.run("check run.toml moe.record_routes=true"), static_cast<int>(Exit::usage));
  EXPECT_TRUE(says("moe.record_routes") && says("sft samples no responses")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
