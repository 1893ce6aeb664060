// A run of 12 steps, against the same run gone on from a checkpoint after k of them: metrics (but timing_s/
// and perf/) and exported weights are the same bytes. Through the program itself, on two ranks.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"

namespace temper {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMaxFile = 1 << 26;

const char* kModel = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32,
  "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "vocab_size": 6400, "max_position_embeddings": 256, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2})";

/// The KL and entropy terms give gradients although a random model never earns a reward.
const char* kConfig = R"([run]
name = "whole"
steps = 12
threads = 1
[model]
path = "model"
[algorithm]
kl_coef = 0.1
entropy_coef = 0.01
[rollout]
prompts_per_step = 5
samples_per_prompt = 3
max_new_tokens = 12
[train]
samples_per_update = 7
last_partial = "keep"
[optimizer]
lr = 1e-3
schedule = "cosine"
[data]
train = "data.jsonl"
chat = false
[reward]
functions = ["arithmetic"]
[checkpoint]
every = 1
keep = 20
export_hf_every = 12
)";

class StopAndResume : public ::testing::Test {
 protected:
  void SetUp() override {
    program_ = fs::absolute("build/temper").string();
    const std::string tokenizer = fs::absolute("tests/golden/tokenizer/minimind").string();
    folder_ = fs::temp_directory_path() / ("temper_resume_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    write_file_atomic((folder_ / "config.json").string(), kModel);
    write_file_atomic((folder_ / "run.toml").string(), kConfig);
    std::string data;
    for (int i = 0; i < 23; ++i)
      data += fmt::format("{{\"prompt\":\"What is {} plus {}?\",\"answer\":\"{}\"}}\n", i, 3 * i, 4 * i);
    write_file_atomic((folder_ / "data.jsonl").string(), data);
    ASSERT_EQ(shell(program_ + " init --config config.json --out model --seed 1 --tokenizer " + tokenizer),
              0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  int shell(const std::string& command) const {
    const std::string line = "cd " + folder_.string() + " && " + command + " > output.log 2>&1";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int train(int ranks, const std::string& name) const {
    const std::string root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return shell(fmt::format("mpirun -n {} --oversubscribe --bind-to none{} {} train run.toml run.name={}",
                             ranks, root, program_, name));
  }
  std::string output() const { return read_file((folder_ / "output.log").string(), kMaxFile); }
  fs::path run(const std::string& name) const { return folder_ / "runs" / name; }
  std::string weights(const std::string& name) const {
    return read_file((run(name) / "export/step-000012/model.safetensors").string(), kMaxFile);
  }
  /// metrics.jsonl without what may differ.
  std::string metrics(const std::string& name) const {
    const std::string path = (run(name) / "metrics.jsonl").string(), all = read_file(path, kMaxFile);
    std::string kept;
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find('\n', at);
      const Json line = parse_json(all.substr(at, end - at), path);
      for (const auto& [key, value] : line.items())
        if (!key.starts_with("timing_s/") && !key.starts_with("perf/"))
          kept += key + "=" + value.dump() + " ";
      kept += "\n";
      at = end + 1;
    }
    return kept;
  }
  /// A copy of the whole run as it was after `step`.
  void copy_until(const std::string& name, int step) const {
    fs::copy(run("whole"), run(name), fs::copy_options::recursive);
    for (int s = step + 1; s <= 12; ++s)
      fs::remove_all(run(name) / "checkpoints" / fmt::format("step-{:06d}", s));
  }

  std::string program_;
  fs::path folder_;
};

TEST_F(StopAndResume, GoesOnBitForBit) {
  ASSERT_EQ(train(2, "whole"), 0) << output();
  const std::string all = metrics("whole"), exported = weights("whole");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 12);
  ASSERT_EQ(train(2, "again"), 0) << output();
  EXPECT_EQ(metrics("again"), all);
  EXPECT_EQ(weights("again"), exported);
  for (int step : {1, 4, 7, 11}) {
    const std::string name = "from" + std::to_string(step);
    copy_until(name, step);
    ASSERT_EQ(train(2, name), 0) << output();
    EXPECT_NE(output().find(fmt::format("step {}", step)), std::string::npos);
    EXPECT_EQ(metrics(name), all) << "after step " << step;
    EXPECT_EQ(weights(name), exported) << "after step " << step;
  }
  copy_until("damaged", 6);
  const std::string file = (run("damaged") / "checkpoints/step-000006/rank-0001.h5").string();
  std::string bytes = read_file(file, kMaxFile);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic(file, bytes);
  EXPECT_EQ(shell(program_ + " verify --checkpoint runs/damaged"), 65);
  EXPECT_NE(output().find("rank-0001.h5"), std::string::npos) << output();
  ASSERT_EQ(train(2, "damaged"), 0) << output();  // goes on from step 5
  EXPECT_EQ(weights("damaged"), exported);
  copy_until("wider", 6);
  EXPECT_EQ(train(3, "wider"), 0) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
