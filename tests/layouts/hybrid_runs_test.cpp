// Whole runs of a model with gated delta nets, by SFT, whose trainer ranks share it in one way or another:
// state that one layout has saved goes on under any other, and under its own with its own bits.

#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

constexpr const char* kHybrid = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
  "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
  "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "hidden_act": "silu",
  "full_attention_interval": 2, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "initializer_range": 0.2, "eos_token_id": 2,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}})";
constexpr int kSteps = 4;
constexpr const char* kConfig = R"(
run.name = "one"
run.steps = 4
model.path = "hybrid"
algorithm.name = "sft"
train.samples_per_update = 9
train.max_tokens_per_microbatch = 64
optimizer.schedule = "constant"
checkpoint.every = 1
checkpoint.keep = 20
checkpoint.export_hf_every = 4
)";

struct Layout {
  const char* name;
  int ranks;
  const char* keys;
};
constexpr Layout kFrom[] = {{"shards", 4, "roles.trainer.tp=2 roles.trainer.zero=3"},
                            {"stages", 4, "roles.trainer.cp=2 roles.trainer.pp=2"}},
                 kTo[] = {{"heads", 4, "roles.trainer.tp=4 train.recompute.granularity=full"},
                          {"tokens", 4, "roles.trainer.tp=2 roles.trainer.cp=2"}};

class HybridRun : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(40));
    ASSERT_EQ(program_.init_model("hybrid", kHybrid), 0) << output();
  }
  static RanksRun run(const Layout& l, const std::string& name, const std::string& more) {
    return {l.ranks, fmt::format("train run.toml run.name={} {} {}", name, l.keys, more)};
  }
};

TEST_F(HybridRun, StateOfOneLayoutLoadsUnderAnother) {
  const std::string more = "run.dtype=fp64";
  ASSERT_EQ(program_.run("train run.toml " + more), 0) << output();
  std::vector<RanksRun> first, then;
  for (const Layout& from : kFrom) first.push_back(run(from, from.name, more + " run.steps=2"));
  ASSERT_EQ(run_each(first), 0) << output();
  std::vector<std::string> names;
  for (const Layout& from : kFrom)
    for (const Layout& to : kTo) {
      names.push_back(fmt::format("{}-{}", from.name, to.name));
      std::filesystem::copy(program_.path(std::string("runs/") + from.name),
                            program_.path("runs/" + names.back()), std::filesystem::copy_options::recursive);
      then.push_back(run(to, names.back(), more));
    }
  ASSERT_EQ(run_each(then), 0) << output();
  const double want = program_.metrics("one").back().at("train/grad_norm").get<double>();
  for (const std::string& name : names) {
    EXPECT_EQ(steps_done(name), kSteps) << name;
    EXPECT_NEAR(program_.metrics(name).back().at("train/grad_norm").get<double>(), want, 1e-8 * want) << name;
  }
}

/// In bf16, whose wide weights are fp32 in state and export.
TEST_F(HybridRun, GoesOnWithItsOwnBits) {
  for (const Layout& l : {kFrom[0], kTo[1]}) {
    const std::string whole = std::string(l.name) + "-whole", rest = std::string(l.name) + "-rest";
    ASSERT_EQ(run_each({run(l, whole, "run.dtype=bf16")}), 0) << output();
    copy_until(whole, rest, 2, kSteps);
    ASSERT_EQ(run_each({run(l, rest, "run.dtype=bf16")}), 0) << output();
    EXPECT_EQ(metrics(rest), metrics(whole)) << l.name;
    EXPECT_TRUE(exported_weights(rest, kSteps) == exported_weights(whole, kSteps)) << l.name;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
