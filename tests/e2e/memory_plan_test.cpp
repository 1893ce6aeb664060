// Memory of runs as `check` plans it (tests/support/memory_plan.h); of more layouts in tests/layouts.

#include "tests/support/memory_plan.h"

#include "tests/support/real_data.h"

namespace temper {
namespace {

/// A small model with the vocabulary of a large one.
const char* kManyTokens = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
  "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "vocab_size": 151936, "max_position_embeddings": 256, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 151645})";

const MemoryCase kCases[] = {
    {"fp32", 1, ""},
    {"bf16", 1, "run.dtype=bf16"},
    {"reference", 1, "algorithm.kl_coef=0.1"},
    {"sft", 1,
     "algorithm.name=sft rollout.min_new_tokens=0 rollout.max_prompt_tokens=12 rollout.max_new_tokens=4 "
     "train.samples_per_update=64 train.max_tokens_per_microbatch=512"},
    {"validation", 1,
     "validation.data=data.jsonl validation.every=1 validation.max_prompts=16 "
     "validation.samples_per_prompt=4"},
    {"tp2", 2, "roles.trainer.tp=2"},
    {"frozen", 2,
     "roles.trainer.pp=2 roles.rollout.pp=1 "
     "'train.freeze=[\"model.embed_tokens.weight\", \"model.layers.*.mlp.*\", \"model.layers.1.*\"]'"},
    {"zero3", 2, "roles.trainer.zero=3 algorithm.kl_coef=0.1"},
    {"experts", 2, "model.path=experts roles.trainer.ep=2"},
    {"hybrid", 1, "model.path=hybrid run.dtype=bf16"},
    {"lora", 1, "lora.rank=16 algorithm.kl_coef=0.1"},
};

TEST_F(MemoryPlan, IsWhatARunTakes) {
  for (const MemoryCase& c : kCases) compare(c);
}

/// The tokenizer is memory of the process, too.
TEST_F(MemoryPlan, CountsALargeTokenizer) {
  std::filesystem::create_directory(program_.path("qwen3"));
  if (!unpack_tokenizer("qwen3", program_.path("qwen3")))
    GTEST_SKIP() << how_to_get(real_data("tokenizers/qwen3"));
  const std::string questions = real_data("gsm8k/train.jsonl");
  if (!path_exists(questions)) GTEST_SKIP() << how_to_get(questions);
  program_.write("many.json", kManyTokens);
  ASSERT_EQ(program_.run("init --config many.json --tokenizer qwen3 --out many --seed 1"), 0) << output();
  const std::string keys = fmt::format(
      "model.path=many data.train={} data.prompt_key=question data.chat=true algorithm.entropy_coef=0.001 "
      "rollout.max_prompt_tokens=200 data.overlong=drop train.max_tokens_per_microbatch=512 "
      "checkpoint.export_hf_every=0 'reward.functions=[\"gsm8k\"]'",
      std::filesystem::absolute(questions).string());
  compare({"tokenizer", 2, keys.c_str()});
}

/// The metrics have each phase of the table, the step before it is saved included.
TEST_F(MemoryPlan, PhasesAreInTheMetrics) {
  const char* keys = "run.steps=1 algorithm.kl_coef=0.1 validation.data=data.jsonl validation.every=1";
  ASSERT_EQ(program_.run(fmt::format("train run.toml run.name=phases {}", keys)), 0) << output();
  ASSERT_EQ(program_.run(fmt::format("check run.toml --json {}", keys)), 0) << output();
  const Json table = parse_json(output(), "check")["memory"];
  const std::vector<Json> lines = program_.metrics("phases");
  EXPECT_EQ(table.size(), 6u);
  for (const Json& row : table) {
    const std::string phase = row["phase"];
    const Json& held = lines.back()["perf/peak_gb/" + phase + "/host"];
    ASSERT_TRUE(held.is_number()) << phase;
    const auto planned = static_cast<double>(row["host_bytes"].get<int64_t>()) / 1073741824;
    EXPECT_NEAR(held.get<double>(), planned, std::max(0.016, 0.03 * planned)) << phase;
    EXPECT_EQ(lines.back()["perf/peak_gb/" + phase + "/device"], 0.0) << phase;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_memory_tests(argc, argv); }
