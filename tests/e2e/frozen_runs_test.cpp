// Whole runs of 6 steps have the bits that they had when they were frozen: GRPO without and with a reference,
// with steps ahead and partial rollouts, with gradients clipped, with layers of experts or of delta nets, and
// SFT; on 1, 2 and 4 ranks, in fp32 and bf16. tests/golden/frozen/DTYPE.json has the digests. A digest that
// changes on purpose is frozen again by tools/freeze_runs.sh, in the commit that says why.

#include "tests/e2e/frozen_mode.h"

namespace temper {
namespace {

/// Grouped heads with norms and biases; its shapes are multiples of 16.
const char* kQwen3 = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 16, "attention_bias": true, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";
/// Biases everywhere, a head of its own, scaled rope; its shapes are no multiples of 16.
const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 24,
  "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
  "head_dim": 8, "attention_bias": true, "mlp_bias": true, "vocab_size": 6400,
  "max_position_embeddings": 256, "tie_word_embeddings": false, "rms_norm_eps": 1e-5,
  "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, "initializer_range": 0.2,
  "eos_token_id": 2})";

/// Experts, one of them shared; the second layer has none.
const char* kQwen2Moe = R"({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
  "hidden_size": 24, "intermediate_size": 40, "moe_intermediate_size": 12,
  "shared_expert_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2,
  "norm_topk_prob": false, "mlp_only_layers": [1], "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

/// Gated delta nets in two layers of three; prompts are longer than a chunk of theirs, too.
const char* kHybrid = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
  "linear_key_head_dim": 16, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "hidden_act": "silu",
  "full_attention_interval": 3, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "initializer_range": 0.2, "eos_token_id": 2,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}})";

/// Sizes that the program would choose by the machine are given. Digits are likely, so that rewards differ;
/// gradients are not clipped, so that no weight depends on the last bit of their norm.
const char* kConfig = R"([run]
name = "run"
steps = 6
device = "cpu"
threads = 1
[model]
path = "model"
[algorithm]
entropy_coef = 0.01
[rollout]
prompts_per_step = 4
samples_per_prompt = 3
max_new_tokens = 12
stop = ["e", "a"]
logit_bias = {52 = 5.0, 53 = 5.0, 54 = 5.0, 55 = 5.0}
max_running_sequences = 8
prefill_chunk_tokens = 50
kv_memory = 4000000
[train]
samples_per_update = 7
max_tokens_per_microbatch = 256
last_partial = "keep"
[optimizer]
lr = 5e-3
grad_clip = 0
schedule = "cosine"
warmup_steps = 2
[data]
train = "data.jsonl"
chat = false
[reward]
functions = [{name = "gsm8k", method = "flexible", format_score = 0.5},
             {name = "length", max_tokens = 12, buffer_tokens = 8, weight = 0.25}]
[checkpoint]
every = 6
export_hf_every = 6
)";

struct Kind {
  const char* name;
  const char* model;
  std::set<std::string> uncalled;  // functions of libm
  const char* keys;
  const char* roles_of_4_ranks;
};

const std::set<std::string> kNoDelta{"log1pf"}, kNoKl{"log1pf", "expm1"};
const Kind kKinds[] = {
    {"grpo", kQwen3, kNoKl,
     "validation.data=valid.jsonl validation.every=3 validation.samples_per_prompt=2 "
     "validation.rollout.temperature=0.5",
     ""},
    {"reference", kLlama, kNoDelta,
     "algorithm.kl_coef=0.1 algorithm.aggregation=seq-mean-token-mean train.epochs_per_step=2 "
     "rollout.top_k=300 rollout.top_p=0.95 rollout.min_p=1e-5 rollout.stop=[] rollout.max_new_tokens=24 "
     "'rollout.logit_bias={52=2.0,53=2.0,54=2.0,55=2.0}' rollout.kv_memory=33000 "
     "rollout.max_running_sequences=12",
     R"(roles.rollout.ranks='"0-2"' roles.reference.ranks='"3"' roles.trainer.ranks='"1,3"')"},
    {"ahead", kQwen3, kNoKl,
     "run.max_policy_lag=1 rollout.tokens_per_step=5 rollout.dynamic_sampling_rounds=1 "
     "rollout.repetition_penalty=1.1 rollout.presence_penalty=0.1",
     R"(roles.rollout.ranks='"0-1"' roles.trainer.ranks='"2-3"')"},
    {"clipped", kLlama, kNoDelta, "algorithm.kl_coef=0.05 algorithm.kl_in=reward optimizer.grad_clip=0.5",
     ""},
    {"experts", kQwen2Moe, kNoDelta, "algorithm.kl_coef=0.1",
     "roles.trainer.tp=2 roles.trainer.pp=2 roles.rollout.tp=4 roles.rollout.pp=1 roles.trainer.ep=1"},
    {"hybrid",
     kHybrid,
     {},
     "algorithm.kl_coef=0.1 rollout.max_running_sequences=6",
     "roles.trainer.tp=2 roles.trainer.pp=2 roles.rollout.tp=4 roles.rollout.pp=1"},
    {"sft", kLlama, kNoKl,
     "algorithm.name=sft optimizer.schedule=constant optimizer.warmup_steps=0 validation.data=valid.jsonl "
     "validation.every=3",
     ""},
};

struct FrozenCase {
  const Kind* kind;
  const char* dtype;
  int ranks;
};

void PrintTo(const FrozenCase& c, std::ostream* out) {
  *out << c.kind->name << ", " << c.dtype << ", ranks: " << c.ranks;
}

std::vector<FrozenCase> all_cases() {
  std::vector<FrozenCase> cases;
  for (const char* dtype : {"fp32", "bf16"})
    for (const Kind& kind : kKinds)
      for (int ranks : {1, 2, 4}) cases.push_back({&kind, dtype, ranks});
  return cases;
}

/// Short prompts, and every fifth one longer than a block of 128 keys; responses alike.
std::string lines_of_data(int first, int count) {
  std::string data;
  for (int i = first; i < first + count; ++i) {
    std::string prompt = fmt::format("Name {} of them.", i), response = fmt::format(" {} and {}", 3 * i, i);
    if (i % 5 == 3)
      for (int k = 0; k < 25; ++k) prompt += fmt::format(" {} and {},", k, i + k);
    if (i % 5 == 1)
      for (int k = 0; k < 25; ++k) response += fmt::format(", then {}", i * k);
    data += Json{{"prompt", prompt}, {"answer", std::to_string(i)}, {"response", response}}.dump() + "\n";
  }
  return data;
}

class FrozenRuns : public ::testing::TestWithParam<FrozenCase> {
 protected:
  /// The run of this case in the folder of the program.
  void run(const Program& program) const {
    const auto [kind, dtype, ranks] = GetParam();
    program.write("run.toml", kConfig);
    program.write("data.jsonl", lines_of_data(0, 40));
    program.write("valid.jsonl", lines_of_data(100, 5));
    ASSERT_EQ(program.init_model("model", kind->model), 0) << program.output();
    const std::string roles = ranks == 4 ? kind->roles_of_4_ranks : "";
    const std::string train = fmt::format("train run.toml run.dtype={} {} {}", dtype, kind->keys, roles);
    ASSERT_EQ(program.run_ranks(ranks, train), 0) << program.output();
  }

  void compare_with(const std::string& other) const {
    const Program before(other), now(mode_.program);
    ASSERT_NO_FATAL_FAILURE(run(before));
    ASSERT_NO_FATAL_FAILURE(run(now));
    const FrozenKeys keys = keys_of(before, "run");
    expect_equal_runs(bits_of(now, "run", keys), bits_of(before, "run", keys), GetParam().ranks);
  }

  /// The keys of a kind stay those of its first run that was frozen.
  void freeze() const {
    const Program program(mode_.program);
    ASSERT_NO_FATAL_FAILURE(run(program));
    Json golden = golden_to_write(path_);
    Json& kind = golden[GetParam().kind->name];
    keys_of(program, "run").keep_in(kind);
    kind[ranks_] = digests_of(bits_of(program, "run", FrozenKeys::of(kind)));
    write_file_atomic(path_, golden.dump(1) + "\n");
  }

  const FrozenMode mode_ = FrozenMode::read();
  const std::string path_ = fmt::format("{}{}.json", kFrozenFolder, GetParam().dtype);
  const std::string ranks_ = GetParam().ranks == 1 ? "1 rank" : fmt::format("{} ranks", GetParam().ranks);
};

TEST_P(FrozenRuns, HaveTheirBits) {
  if (!mode_.other.empty()) return compare_with(mode_.other);
  if (mode_.write) return freeze();
  const Json golden = read_json_file(path_);
  const std::string why = why_not_comparable(golden, path_, GetParam().kind->uncalled);
  if (!why.empty()) GTEST_SKIP() << why;
  const Program program(mode_.program);
  ASSERT_NO_FATAL_FAILURE(run(program));
  const Json& kind = golden.at(GetParam().kind->name);
  expect_frozen(bits_of(program, "run", FrozenKeys::of(kind)), kind.at(ranks_), GetParam().ranks);
}

INSTANTIATE_TEST_SUITE_P(All, FrozenRuns, ::testing::ValuesIn(all_cases()), [](const auto& tested) {
  const FrozenCase& c = tested.param;
  return fmt::format("{}_{}_{}", c.kind->name, c.dtype, c.ranks);
});

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
