// What a run goes on from: a damaged checkpoint is never loaded, not even when it is named, and none is
// removed because it is damaged. Through the program itself.

#include <limits>

#include "src/comm/alone/one_rank.h"
#include "src/io/checkpoint/checkpoint.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "a"
run.steps = 3
algorithm.name = "sft"
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 1
rollout.max_new_tokens = 8
train.samples_per_update = 2
reward.functions = ["exact"]
checkpoint.every = 1
checkpoint.keep = 9
)";

class Resume : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(2));
    ASSERT_EQ(train(""), 0) << output();
  }
  int train(const std::string& overrides) const { return program_.run("train run.toml " + overrides); }
  static std::string step(int n) { return checkpoint("a", n); }
  /// Saves a checkpoint again, with a moment of the optimizer that is no number: all digests are right.
  void spoil(int n) const {
    const Manifest manifest = Manifest::read(program_.path(step(n)));
    std::vector<std::vector<char>> memory;
    std::vector<StateTensor> state;
    float* moment = nullptr;
    for (const auto& [name, tensor] : manifest.tensors()) {
      int64_t size = 1;
      for (const int64_t d : tensor.shape) size *= d;
      memory.emplace_back(static_cast<size_t>(size * dtype_size(tensor.dtype)));
      state.push_back(
          {name, tensor.shape, {0, size}, make_tensor(memory.back().data(), tensor.dtype, {size})});
      if (name.starts_with("opt/") && tensor.dtype == DType::f32)
        moment = reinterpret_cast<float*>(memory.back().data());
    }
    load_state(manifest, state);
    ASSERT_NE(moment, nullptr);
    *moment = std::numeric_limits<float>::quiet_NaN();
    const std::string name = step(n) + "/manifest.json";
    OneRank alone;
    save_checkpoint(program_.path("runs/a/checkpoints"), n, state,
                    parse_json(program_.read(name), name).at("meta"), alone, {.numbers = Numbers::any});
  }
};

TEST_F(Resume, DamagedCheckpointsAreNeitherLoadedNorRemoved) {
  damage(step(3) + "/rank-0000.h5");
  EXPECT_EQ(train("checkpoint.resume=" + step(3)), 65) << output();
  EXPECT_TRUE(says("rank-0000.h5") && says("damaged")) << output();
  EXPECT_EQ(train("checkpoint.resume=runs/a"), 65) << "its newest: " << output();
  EXPECT_EQ(program_.run("export --out exported --checkpoint " + step(3)), 65) << output();
  damage(step(2) + "/manifest.json");
  damage(step(1) + "/manifest.json");
  EXPECT_EQ(train(""), 65) << output();
  EXPECT_TRUE(says("no checkpoint of this run can be used") && says("run.overwrite")) << output();
  for (int n : {1, 2, 3}) EXPECT_TRUE(exists(step(n) + "/rank-0000.h5")) << "the user may have a use for it";
  EXPECT_EQ(program_.metrics("a").size(), 3u);
  EXPECT_EQ(train("checkpoint.resume=none run.overwrite=true"), 0) << output();
  EXPECT_EQ(program_.run("verify --checkpoint runs/a"), 0) << output();
}

TEST_F(Resume, GoesOnFromTheNewestSoundOne) {
  damage(step(3) + "/manifest.json");
  EXPECT_EQ(train("run.steps=4"), 0) << output();
  EXPECT_TRUE(says("step-000003 is passed over")) << output();
  EXPECT_TRUE(says("resumed from runs/a/checkpoints/step-000002")) << output();
  EXPECT_EQ(program_.metrics("a").size(), 4u);
  EXPECT_EQ(program_.run("verify --checkpoint " + step(4)), 0) << output();
}

/// No run saves them: they come from elsewhere, or from a version that did not look.
TEST_F(Resume, NumbersThatAreNotFiniteAreNoStart) {
  spoil(3);
  EXPECT_EQ(program_.run("verify --checkpoint " + step(3)), 0) << "its bytes are sound: " << output();
  for (const char* run : {"a", "b"}) {
    EXPECT_EQ(train(fmt::format("run.steps=4 run.name={} checkpoint.resume={}", run, step(3))), 65)
        << output();
    EXPECT_TRUE(says("step-000003/rank-0000.h5, opt/") && says("not all finite")) << output();
  }
  EXPECT_TRUE(exists(step(3) + "/manifest.json") && !exists("runs/b/checkpoints")) << "nothing has begun";
  EXPECT_EQ(train("run.steps=4"), 0) << output();
  EXPECT_TRUE(says("step-000003 is passed over") && says("not all finite")) << output();
  EXPECT_TRUE(says("resumed from runs/a/checkpoints/step-000002")) << output();
  EXPECT_EQ(program_.run("verify --checkpoint " + step(4)), 0) << output();
  EXPECT_TRUE(verify_checkpoint(program_.path(step(4)), Numbers::finite).empty());
}

/// Killed between the commit of a checkpoint and its export.
TEST_F(Resume, MakesTheExportThatIsOwed) {
  const std::string every = "checkpoint.export_hf_every=2 ";
  ASSERT_EQ(train(every + "run.name=whole"), 0) << output();
  const std::string last = "runs/whole/export/step-000003/model.safetensors", all = program_.read(last);
  std::filesystem::remove_all(program_.path("runs/whole/export/step-000003"));
  EXPECT_EQ(train(every + "run.name=whole"), 0) << output();
  EXPECT_TRUE(says("nothing is left to do")) << output();
  EXPECT_TRUE(program_.read(last) == all) << "the last step's";
  const std::string second = "runs/whole/export/step-000002/model.safetensors", half = program_.read(second);
  std::filesystem::remove_all(program_.path("runs/whole/export"));
  std::filesystem::remove_all(program_.path("runs/whole/checkpoints/step-000003"));
  EXPECT_EQ(train(every + "run.name=whole"), 0) << output();
  EXPECT_TRUE(program_.read(second) == half && program_.read(last) == all) << "that of a step in between";
}

TEST_F(Resume, AReplayDoesNotRemoveARun) {
  const std::string file = "replay.jsonl",
                    sample = "{\"group\":0,\"prompt_tokens\":[5,6],\"response_tokens\":[7,8],\"reward\":1}\n";
  program_.write(file, sample + sample);
  const std::string all = program_.read("runs/a/metrics.jsonl");
  EXPECT_EQ(train("--replay " + file), 64) << output();
  EXPECT_TRUE(says("run.name")) << output();
  EXPECT_EQ(program_.read("runs/a/metrics.jsonl"), all);
  EXPECT_TRUE(exists(step(3) + "/manifest.json"));
  for (int again = 0; again < 2; ++again)  // a replay over an earlier replay is none of that
    EXPECT_EQ(train("run.name=b --replay " + file), 0) << output();
  EXPECT_EQ(program_.metrics("b").size(), 1u);
}

TEST_F(Resume, AReplaySavesAndGoesOnLikeAnyRun) {
  const auto write = [&](const std::string& file, int token) {
    const std::string sample = fmt::format(
        "{{\"group\":0,\"prompt_tokens\":[5,6],\"response_tokens\":[7,{}],\"reward\":1}}\n", token);
    program_.write(file, sample + sample);
  };
  for (const int file : {1, 2, 3}) write(fmt::format("{}.jsonl", file), 7 + file);
  const std::string all = "run.name=b checkpoint.export_hf_every=2 --replay 1.jsonl 2.jsonl ";
  ASSERT_EQ(train(all + "3.jsonl"), 0) << output();
  const std::string fixed = metrics("b"), weights = exported_weights("b", 3);
  EXPECT_TRUE(exists("runs/b/export/step-000002/model.safetensors"));
  EXPECT_EQ(program_.run("verify --checkpoint runs/b"), 0) << output();
  EXPECT_EQ(program_.run("export --checkpoint runs/b --out exported"), 0) << output();
  EXPECT_TRUE(program_.read("exported/model.safetensors") == weights);
  std::filesystem::remove_all(program_.path("runs/b/checkpoints/step-000003"));
  ASSERT_EQ(train(all + "3.jsonl"), 0) << output();
  EXPECT_TRUE(says("resumed from runs/b/checkpoints/step-000002")) << output();
  EXPECT_EQ(metrics("b"), fixed);
  EXPECT_TRUE(exported_weights("b", 3) == weights);
  EXPECT_EQ(train("run.name=b --replay 1.jsonl 3.jsonl 2.jsonl"), 64) << output();
  EXPECT_TRUE(says("--replay 1.jsonl 2.jsonl 3.jsonl -> 1.jsonl 3.jsonl 2.jsonl")) << output();
  EXPECT_EQ(train("run.name=b"), 64) << "the run is a replay: " << output();
  write("2.jsonl", 20);
  write("4.jsonl", 11);
  EXPECT_EQ(train(all + "3.jsonl 4.jsonl"), 64) << output();
  EXPECT_TRUE(says("changed since: --replay 2.jsonl (") && says("checkpoint.accept_changes")) << output();
  write("2.jsonl", 9);
  write("same.jsonl", 8);
  EXPECT_EQ(train("run.name=b --replay same.jsonl 2.jsonl 3.jsonl 4.jsonl"), 0) << output();
  EXPECT_TRUE(says("--replay 1.jsonl 2.jsonl 3.jsonl -> same.jsonl 2.jsonl 3.jsonl (the same content)"))
      << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
