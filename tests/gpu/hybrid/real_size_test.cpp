// As many layers of the 9B shape as fit a GPU, optimizer's state and all, learn by GRPO through the program:
// on policy to the bit, in the memory that `check` says. Nothing else may use the GPU. It takes some 10 GB of
// disk and of host memory for the random model.

#include "tests/gpu/gpu_runs.h"

namespace temper {
namespace {

constexpr int kSteps = 5, kMostLayers = 32;
/// A run saves at its end, which here takes more disk than the rest of all tests: it is killed before.
constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 1000
run.device = "cuda"
run.threads = 8
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 8
rollout.samples_per_prompt = 8
rollout.max_new_tokens = 256
rollout.ignore_eos = true
rollout.max_running_sequences = 64
rollout.kv_memory = "2 GiB"
train.max_tokens_per_microbatch = 8192
train.offload.optimizer = false
model.context_tokens = 400
checkpoint.every_minutes = 0
)";

class RealSize : public GpuRunFixture {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(40));
  }
  /// The first layers of Qwen3.5-9B, as a model of text alone.
  static Json shape(int layers) {
    Json whole = parse_json(read_file("conf/models/Qwen3.5-9B.json", int64_t{1} << 20), "Qwen3.5-9B.json");
    Json text = whole.at("text_config");
    text.erase("layer_types");
    text["architectures"] = Json::array({"Qwen3_5ForCausalLM"});
    text["tie_word_embeddings"] = false;
    text["num_hidden_layers"] = layers;
    text["eos_token_id"] = 2;
    return text;
  }
  /// The most that `check` finds room for here.
  int layers_that_fit() const {
    for (int layers = kMostLayers; layers > 0; --layers) {
      std::filesystem::create_directories(program_.path("shape"));
      program_.write("shape/config.json", shape(layers).dump());
      if (program_.run("check run.toml model.path=shape") == 0) return layers;
    }
    ADD_FAILURE() << output();
    return 0;
  }
};

TEST_F(RealSize, LayersThatFitLearn) {
  const int layers = layers_that_fit();
  std::printf("%d layers of the 9B shape\n", layers);
  ASSERT_GE(layers, 4) << "with attention among them";
  ASSERT_EQ(program_.init_model("model", shape(layers).dump().c_str()), 0) << output();
  {
    Background job(program_, program_.temper() + " train run.toml");
    for (int i = 0; i < 3 && !job.until([&] { return steps_done("run") >= kSteps; }); ++i) {
    }
    ASSERT_GE(steps_done("run"), kSteps) << output();
  }
  for (const Json& line : program_.metrics("run")) {
    EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << line.dump();
    EXPECT_GT(line.at("actor/grad_norm"), 0.0);
  }
  expect_planned_memory("run", "", 2);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
