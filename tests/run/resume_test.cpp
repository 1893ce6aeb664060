// What a run goes on from: a damaged checkpoint is never loaded, not even when it is named, and none is
// removed because it is damaged. Through the program itself.

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace temper {
namespace {

const char* kConfig = R"([run]
name = "a"
steps = 3
threads = 1
[model]
path = "model"
[algorithm]
name = "sft"
[rollout]
prompts_per_step = 2
samples_per_prompt = 1
max_new_tokens = 8
[train]
samples_per_update = 2
[optimizer]
lr = 1e-3
[data]
train = "data.jsonl"
chat = false
[reward]
functions = ["exact"]
[checkpoint]
every = 1
keep = 9
)";

class Resume : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.write("run.toml", kConfig);
    program_.write("data.jsonl",
                   "{\"prompt\":\"one\",\"response\":\"two\"}\n{\"prompt\":\"two\",\"response\":\"one\"}\n");
    ASSERT_EQ(program_.init_model("model"), 0) << program_.output();
    ASSERT_EQ(train(""), 0) << program_.output();
  }
  int train(const std::string& overrides) const { return program_.run("train run.toml " + overrides); }
  static std::string step(int n) { return fmt::format("runs/a/checkpoints/step-{:06d}", n); }
  void flip(const std::string& name) const {
    std::string bytes = program_.read(name);
    bytes[bytes.size() / 2] ^= 1;
    program_.write(name, bytes);
  }
  bool says(const std::string& text) const { return program_.output().find(text) != std::string::npos; }
  bool exists(const std::string& name) const { return path_exists(program_.path(name)); }

  Program program_;
};

TEST_F(Resume, DamagedCheckpointsAreNeitherLoadedNorRemoved) {
  flip(step(3) + "/rank-0000.h5");
  EXPECT_EQ(train("checkpoint.resume=" + step(3)), 65) << program_.output();
  EXPECT_TRUE(says("rank-0000.h5") && says("damaged")) << program_.output();
  EXPECT_EQ(train("checkpoint.resume=runs/a"), 65) << "its newest: " << program_.output();
  EXPECT_EQ(program_.run("export --out exported --checkpoint " + step(3)), 65) << program_.output();
  flip(step(2) + "/manifest.json");
  flip(step(1) + "/manifest.json");
  EXPECT_EQ(train(""), 65) << program_.output();
  EXPECT_TRUE(says("no checkpoint of this run can be used") && says("run.overwrite")) << program_.output();
  for (int n : {1, 2, 3}) EXPECT_TRUE(exists(step(n) + "/rank-0000.h5")) << "the user may have a use for it";
  EXPECT_EQ(program_.metrics("a").size(), 3u);
  EXPECT_EQ(train("checkpoint.resume=none run.overwrite=true"), 0) << program_.output();
  EXPECT_EQ(program_.run("verify --checkpoint runs/a"), 0) << program_.output();
}

TEST_F(Resume, GoesOnFromTheNewestSoundOne) {
  flip(step(3) + "/manifest.json");
  EXPECT_EQ(train("run.steps=4"), 0) << program_.output();
  EXPECT_TRUE(says("step-000003 is passed over")) << program_.output();
  EXPECT_TRUE(says("resumed from runs/a/checkpoints/step-000002")) << program_.output();
  EXPECT_EQ(program_.metrics("a").size(), 4u);
  EXPECT_EQ(program_.run("verify --checkpoint " + step(4)), 0) << program_.output();
}

TEST_F(Resume, AReplayDoesNotRemoveARun) {
  const std::string file = "replay.jsonl",
                    sample = "{\"group\":0,\"prompt_tokens\":[5,6],\"response_tokens\":[7,8],\"reward\":1}\n";
  program_.write(file, sample + sample);
  const std::string all = program_.read("runs/a/metrics.jsonl");
  EXPECT_EQ(train("--replay " + file), 64) << program_.output();
  EXPECT_TRUE(says("run.name")) << program_.output();
  EXPECT_EQ(program_.read("runs/a/metrics.jsonl"), all);
  EXPECT_TRUE(exists(step(3) + "/manifest.json"));
  for (int again = 0; again < 2; ++again)  // a replay over an earlier replay is none of that
    EXPECT_EQ(train("run.name=b --replay " + file), 0) << program_.output();
  EXPECT_EQ(program_.metrics("b").size(), 1u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
