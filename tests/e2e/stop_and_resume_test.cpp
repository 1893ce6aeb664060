// A run of 12 steps, against the same run gone on from a checkpoint after k of them: metrics (but timing_s/
// and perf/) and exported weights are the same bytes. Through the program itself, on two ranks.

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

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
    program_.write("run.toml", kConfig);
    std::string data;
    for (int i = 0; i < 23; ++i)
      data += fmt::format("{{\"prompt\":\"What is {} plus {}?\",\"answer\":\"{}\"}}\n", i, 3 * i, 4 * i);
    program_.write("data.jsonl", data);
    ASSERT_EQ(program_.init_model("model"), 0) << program_.output();
  }

  int train(int ranks, const std::string& name) const {
    return program_.run_ranks(ranks, "train run.toml run.name=" + name);
  }
  std::string output() const { return program_.output(); }
  std::string metrics(const std::string& name) const { return program_.fixed_metrics(name); }
  fs::path run(const std::string& name) const { return program_.path("runs/" + name); }
  std::string weights(const std::string& name) const {
    return program_.read("runs/" + name + "/export/step-000012/model.safetensors");
  }
  /// A copy of the whole run as it was after `step`.
  void copy_until(const std::string& name, int step) const {
    fs::copy(run("whole"), run(name), fs::copy_options::recursive);
    for (int s = step + 1; s <= 12; ++s)
      fs::remove_all(run(name) / "checkpoints" / fmt::format("step-{:06d}", s));
  }

  Program program_;
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
  const std::string file = "runs/damaged/checkpoints/step-000006/rank-0001.h5";
  std::string bytes = program_.read(file);
  bytes[bytes.size() / 2] ^= 1;
  program_.write(file, bytes);
  EXPECT_EQ(program_.run("verify --checkpoint runs/damaged"), 65);
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
