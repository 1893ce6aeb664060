// A checkpoint of an earlier build (tests/golden/frozen/run: 2 ranks, fp32, after 3 of 6 steps, with a step
// ahead and unfinished groups in it) is sound, exports its weights, and the run goes on from it with the bits
// of the run that was never stopped; on one rank with those that this build gave on one rank.
// checkpoint.json has the digests. With FROZEN_WRITE=1 the checkpoint is made only where there is none.

#include "tests/e2e/frozen_mode.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

constexpr int kStopped = 3;
const std::string kGolden = std::string(kFrozenFolder) + "checkpoint.json";
const std::string kFrozenRun = std::string(kFrozenFolder) + "run";

/// The model is as small as the vocabulary lets it be.
const char* kModel = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 8,
  "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 8, "attention_bias": true, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.3,
  "eos_token_id": 2})";

const char* kConfig = R"([run]
name = "run"
steps = 6
device = "cpu"
dtype = "fp32"
threads = 1
max_policy_lag = 1
[model]
path = "model"
[algorithm]
kl_coef = 0.1
entropy_coef = 0.01
[rollout]
prompts_per_step = 4
samples_per_prompt = 3
max_new_tokens = 12
tokens_per_step = 5
stop = ["e", "a"]
logit_bias = {52 = 5.0, 53 = 5.0, 54 = 5.0, 55 = 5.0}
kv_memory = 4000000
[train]
samples_per_update = 7
max_tokens_per_microbatch = 64
last_partial = "keep"
[optimizer]
lr = 5e-3
grad_clip = 0
schedule = "cosine"
[data]
train = "data.jsonl"
chat = false
[reward]
functions = [{name = "gsm8k", method = "flexible", format_score = 0.5}]
[checkpoint]
every = 3
export_hf_every = 3
)";

class FrozenCheckpoint : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (FrozenMode::read().write) freeze();
  }
  void SetUp() override { golden_ = read_json_file(kGolden); }

  static void prepare(const Program& program) {
    program.write("run.toml", kConfig);
    std::string data;
    for (int i = 0; i < 40; ++i)
      data += fmt::format("{{\"prompt\":\"Name {} of them.\",\"answer\":\"{}\"}}\n", i, i);
    program.write("data.jsonl", data);
    ASSERT_EQ(program.init_model("model", kModel), 0) << program.output();
  }
  /// The folder of the frozen run, ready to go on.
  static void copy_run(const Program& program) {
    ASSERT_NO_FATAL_FAILURE(prepare(program));
    fs::create_directories(program.path("runs"));
    fs::copy(kFrozenRun, program.path("runs/run"), fs::copy_options::recursive);
  }
  static RunBits go_on(const Program& program, int ranks, const FrozenKeys& keys) {
    EXPECT_EQ(program.run_ranks(ranks, "train run.toml"), 0) << program.output();
    EXPECT_NE(program.output().find("step-000003"), std::string::npos) << program.output();
    return bits_of(program, "run", keys);
  }

  static std::string weights(const Program& program, const std::string& folder) {
    return digest_of(read_weights(program.path(folder + "/model.safetensors")));
  }

  /// The checkpoint and what resumption reads, as a crash after step 3 leaves them.
  static void keep_run(const Program& program) {
    const fs::path from = program.path("runs/run"), to = kFrozenRun;
    fs::create_directories(to / "checkpoints");
    fs::create_directories(to / "rollouts");
    fs::copy(from / "checkpoints/step-000003", to / "checkpoints/step-000003");
    for (int step = 1; step <= kStopped; ++step)
      fs::copy(from / fmt::format("rollouts/step-{:06d}.jsonl", step), to / "rollouts");
    std::string lines;
    for (const Json& line : program.metrics("run"))
      if (line.at("step") <= kStopped) lines += line.dump() + "\n";
    write_file_atomic((to / "metrics.jsonl").string(), lines);
  }

  /// Without a frozen run, of one that is never stopped.
  static void freeze() {
    const Program two(FrozenMode::read().program), one(FrozenMode::read().program);
    const bool anew = !fs::exists(kFrozenRun);
    ASSERT_NO_FATAL_FAILURE(anew ? prepare(two) : copy_run(two));
    ASSERT_EQ(two.run_ranks(2, "train run.toml"), 0) << two.output();
    if (anew) keep_run(two);
    Json golden = golden_to_write(kGolden);
    keys_of(two, "run").keep_in(golden);
    ASSERT_NO_FATAL_FAILURE(copy_run(one));
    ASSERT_EQ(one.run("export --checkpoint runs/run --out out"), 0) << one.output();
    golden["export of step 3"] = weights(one, "out");
    golden["2 ranks"] = digests_of(bits_of(two, "run", FrozenKeys::of(golden)));
    golden["1 rank"] = digests_of(go_on(one, 1, FrozenKeys::of(golden)));
    write_file_atomic(kGolden, golden.dump(1) + "\n");
  }

  const FrozenMode mode_ = FrozenMode::read();
  Json golden_;
};

TEST_F(FrozenCheckpoint, IsSoundAndExports) {
  const std::map<std::string, Items> held = read_checkpoint(kFrozenRun + "/checkpoints/step-000003");
  for (const char* group : {"param", "opt/m", "opt/v", "ahead"}) EXPECT_TRUE(held.contains(group)) << group;
  EXPECT_TRUE(held.contains("") && held.at("").contains("unfinished"));
  const Program program(mode_.program);
  ASSERT_NO_FATAL_FAILURE(copy_run(program));
  EXPECT_EQ(program.run("verify --checkpoint runs/run"), 0) << program.output();
  ASSERT_EQ(program.run("export --checkpoint runs/run --out out"), 0) << program.output();
  EXPECT_EQ(weights(program, "out"), golden_.at("export of step 3").get<std::string>());
}

TEST_F(FrozenCheckpoint, GoesOnWithTheSameBits) {
  const std::string why = why_not_comparable(golden_, kGolden, {"log1pf"});
  for (int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const Program program(mode_.program);
    ASSERT_NO_FATAL_FAILURE(copy_run(program));
    const RunBits bits = go_on(program, ranks, FrozenKeys::of(golden_));
    if (!mode_.other.empty()) {
      const Program before(mode_.other);
      ASSERT_NO_FATAL_FAILURE(copy_run(before));
      expect_equal_runs(bits, go_on(before, ranks, FrozenKeys::of(golden_)), ranks);
    } else if (why.empty()) {
      expect_frozen(bits, golden_.at(ranks == 1 ? "1 rank" : "2 ranks"), ranks);
    }
  }
  if (mode_.other.empty() && !why.empty()) GTEST_SKIP() << "it goes on; " << why;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
