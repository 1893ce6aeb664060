// As many layers of the 9B shape as fit a GPU, optimizer's state and all, learn by GRPO through the program:
// on policy to the bit, in the memory that `check` says. Nothing else may use the GPU.

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
optimizer.lr = 1e-5
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
model.init = "random"
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
  /// A folder without weights, which are drawn at the start.
  void write_model(int layers) const {
    std::filesystem::copy(
        "tests/golden/tokenizer/minimind", program_.path("model"),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    program_.write("model/config.json", shape(layers).dump());
  }
  /// The most that `check` finds room for here; the folder is that model's.
  int layers_that_fit() const {
    for (int layers = kMostLayers; layers > 0; --layers) {
      write_model(layers);
      if (program_.run("check run.toml") == 0) return layers;
    }
    return 0;
  }
  /// Exit code of the run, or 0 where it was killed behind its steps.
  int run_some_steps() const {
    Background job(program_, program_.temper() + " train run.toml");
    const auto done = [&] { return steps_done("run") >= kSteps; };
    for (int limits = 0; limits < 3; ++limits)
      if (job.until(done)) return 0;
    return job.wait();
  }
};

TEST_F(RealSize, LayersThatFitLearn) {
  int layers = layers_that_fit();
  ASSERT_GE(layers, 4) << "with attention among them: " << output();
  int code = run_some_steps();
  if (code == static_cast<int>(Exit::environment)) {  // the driver has taken more than the plan knows
    std::filesystem::remove_all(program_.path("runs"));
    write_model(--layers);
    code = run_some_steps();
  }
  ASSERT_EQ(code, 0) << output();
  std::printf("%d layers of the 9B shape\n", layers);
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
