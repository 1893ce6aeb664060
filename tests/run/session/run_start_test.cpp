// What a start finds in the run folder: its own newest checkpoint comes first, nothing is removed that does
// not come again, changes of the config and of what it leads to are said and grave ones refused, and a
// refused start writes nothing. Through the program itself.

#include "src/core/digest/hash.h"
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

class RunStart : public RunFixture {
 protected:
  void SetUp() override {
    prepare(kConfig, sums(2));
    ASSERT_EQ(train(""), 0) << output();
  }
  int train(const std::string& overrides) const { return program_.run("train run.toml " + overrides); }
  std::string read(const std::string& name) const { return program_.read("runs/a/" + name); }
  /// Leaves the run as a crash after `step` of `steps` does.
  void crash_after(const std::string& run, int64_t step, int64_t steps) const {
    for (int64_t later = step + 1; later <= steps; ++later)
      std::filesystem::remove_all(program_.path(checkpoint(run, later)));
  }
  std::vector<int64_t> steps_of(const std::string& run) const {
    std::vector<int64_t> steps;
    for (const Json& line : program_.metrics(run)) steps.push_back(line.at("step").get<int64_t>());
    return steps;
  }
};

TEST_F(RunStart, ARunWithoutACheckpointIsSetAsideAndBeginsAnew) {
  const std::string metrics_before = read("metrics.jsonl"), fixed = metrics("a");
  for (const char* resume : {"auto", "runs/b"}) {
    std::filesystem::copy(program_.path("runs/a"), program_.path("runs/b"),
                          std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(program_.path("runs/a/checkpoints"));
    EXPECT_EQ(train(fmt::format("checkpoint.resume={} checkpoint.accept_changes=true run.steps=4", resume)),
              0)
        << output();
    EXPECT_TRUE(says("set aside in runs/a/set-aside-1")) << output();
    EXPECT_TRUE(read("set-aside-1/metrics.jsonl") == metrics_before);
    EXPECT_TRUE(exists("runs/a/set-aside-1/tensorboard"));
    EXPECT_TRUE(exists("runs/a/set-aside-1/config.toml"));
    const bool anew = std::string(resume) == "auto";
    EXPECT_EQ(steps_of("a"), anew ? (std::vector<int64_t>{1, 2, 3, 4}) : (std::vector<int64_t>{4}));
    if (anew) {
      EXPECT_TRUE(metrics("a").starts_with(fixed));
    }
    std::filesystem::remove_all(program_.path("runs/a"));
    std::filesystem::rename(program_.path("runs/b"), program_.path("runs/a"));
  }
}

/// A crash before the first step leaves nothing that anybody could miss.
TEST_F(RunStart, EmptyFilesAreNotSetAside) {
  make_directories(program_.path("runs/new/rollouts"));
  program_.write("runs/new/metrics.jsonl", "");
  EXPECT_EQ(train("run.name=new"), 0) << output();
  EXPECT_FALSE(exists("runs/new/set-aside-1"));
}

TEST_F(RunStart, LaterCheckpointsAndExportsAreSetAside) {
  ASSERT_EQ(train("checkpoint.export_hf_every=1"), 0) << output();
  const std::string exported = exported_weights("a", 3);
  damage(checkpoint("a", 3) + "/rank-0000.h5");
  const std::string damaged = program_.read(checkpoint("a", 3) + "/rank-0000.h5");
  EXPECT_EQ(train("optimizer.lr=2e-3 checkpoint.export_hf_every=3"), 0) << output();
  EXPECT_TRUE(says("set aside in runs/a/set-aside-1")) << output();
  EXPECT_TRUE(read("set-aside-1/checkpoints/step-000003/rank-0000.h5") == damaged);
  EXPECT_TRUE(read("set-aside-1/export/step-000003/model.safetensors") == exported);
  EXPECT_FALSE(exported_weights("a", 3) == exported) << "another learning rate";
}

/// The path counts where the folder has no checkpoint; then the run goes on from its own.
TEST_F(RunStart, ANamedCheckpointIsTakenOnce) {
  const std::string from = "run.name=b run.steps=4 checkpoint.resume=runs/a/checkpoints/step-000001 ";
  EXPECT_EQ(train(from), 0) << output();
  EXPECT_TRUE(says("resumed from runs/a/checkpoints/step-000001")) << output();
  const std::string fixed = metrics("b");
  for (int64_t step : {2, 3}) {
    crash_after("b", step, 4);
    EXPECT_EQ(train(from), 0) << output();
    EXPECT_TRUE(says(fmt::format("resumed from runs/b/checkpoints/step-{:06d}", step))) << output();
    EXPECT_EQ(metrics("b"), fixed);
  }
  EXPECT_EQ(steps_of("b"), (std::vector<int64_t>{2, 3, 4}));
  std::filesystem::remove_all(program_.path("runs/a"));
  EXPECT_EQ(train(from), 0) << "what it began with is not needed any more: " << output();
  EXPECT_TRUE(says("nothing is left to do")) << output();
}

TEST_F(RunStart, AnOlderOneOfItsOwnRemovesNothing) {
  EXPECT_EQ(train("checkpoint.resume=" + checkpoint("a", 1)), 0) << output();
  EXPECT_TRUE(says("nothing is left to do") && says("checkpoints of its own")) << output();
  for (int step : {1, 2, 3}) EXPECT_TRUE(exists(checkpoint("a", step) + "/manifest.json"));
  EXPECT_EQ(steps_of("a"), (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(RunStart, OverwriteIsHeededOnce) {
  const std::string anew = "checkpoint.resume=none run.overwrite=true optimizer.lr=2e-3 ";
  const std::string before = metrics("a");
  EXPECT_EQ(train(anew), 0) << output();
  const std::string fixed = metrics("a");
  EXPECT_NE(fixed, before) << "what was permitted";
  EXPECT_FALSE(says("resumed from")) << output();
  for (int64_t step : {1, 2}) {
    crash_after("a", step, 3);
    EXPECT_EQ(train(anew), 0) << output();
    EXPECT_TRUE(says(fmt::format("resumed from runs/a/checkpoints/step-{:06d}", step))) << output();
    EXPECT_EQ(metrics("a"), fixed);
  }
  crash_after("a", 2, 3);
  EXPECT_EQ(train(anew + "run.steps=4"), 0) << output();
  EXPECT_FALSE(says("resumed from")) << "another command: " << output();
  EXPECT_FALSE(exists("runs/a/set-aside-1"));
}

TEST_F(RunStart, MetricsThatAreShortAreToldOf) {
  ASSERT_EQ(train("run.steps=6"), 0) << output();
  std::string kept;
  for (const Json& line : program_.metrics("a"))
    if (const int step = line.at("step"); step != 3 && step != 4) kept += dump_json_line(line) + "\n";
  program_.write("runs/a/metrics.jsonl", kept);
  EXPECT_EQ(train("run.steps=7"), 0) << output();
  EXPECT_TRUE(says("metrics.jsonl") && says("steps 3 to 4")) << output();
  damage("runs/a/metrics.jsonl");
  EXPECT_EQ(train("run.steps=7"), 0) << "side files never block: " << output();
  program_.write("runs/a/config-1.toml", "no = [toml");
  EXPECT_EQ(train("run.steps=7"), 0) << output();
  EXPECT_TRUE(says("config-1.toml cannot be read")) << output();
}

TEST_F(RunStart, ChangesAreSaid) {
  const std::string before = read("config.toml");
  EXPECT_EQ(train("run.steps=4 optimizer.lr=2e-3 rollout.prompts_per_step=4 train.samples_per_update=4"), 0);
  for (const char* change :
       {"changed since: run.steps 3 -> 4", "changed since: optimizer.lr 0.001 -> 0.002",
        "changed since: rollout.prompts_per_step 2 -> 4", "changed since: train.samples_per_update 2 -> 4"})
    EXPECT_TRUE(says(change)) << change << ": " << output();
  EXPECT_TRUE(read("config-1.toml") == before) << "the config of every start is kept";
  EXPECT_FALSE(read("config.toml") == before);
  for (int same = 0; same < 2; ++same) EXPECT_EQ(train("run.steps=4 optimizer.lr=3e-3"), 0) << output();
  EXPECT_TRUE(says("optimizer.lr 0.002 -> 0.003")) << "since the checkpoint: " << output();
  EXPECT_TRUE(exists("runs/a/config-2.toml") && !exists("runs/a/config-3.toml"));
}

TEST_F(RunStart, GraveChangesAreRefusedAndNothingIsWritten) {
  program_.write("other.jsonl", sums(3));
  ASSERT_EQ(program_.run("init --config model.config.json --out other --seed 2 --tokenizer model"), 0);
  const std::string config = read("config.toml"), all = read("metrics.jsonl");
  const std::pair<const char*, const char*> grave[] = {
      {"run.seed=5", "run.seed 0 -> 5"},
      {"model.path=other", R"(model.path "model" -> "other")"},
      {"data.train=other.jsonl", "data.train"},
      {"algorithm.name=grpo rollout.samples_per_prompt=2", R"(algorithm.name "sft" -> "grpo")"}};
  for (const auto& [change, words] : grave) {
    EXPECT_EQ(train(std::string("run.steps=4 ") + change), 64) << output();
    EXPECT_TRUE(says(words) && says("checkpoint.accept_changes") && says("run.overwrite")) << output();
  }
  EXPECT_EQ(train("run.steps=4 run.dtype=fp64"), 64) << output();
  EXPECT_TRUE(says("set run.dtype = \"fp32\"")) << output();
  EXPECT_TRUE(read("config.toml") == config && read("metrics.jsonl") == all);
  EXPECT_FALSE(exists("runs/a/config-1.toml"));
  EXPECT_EQ(train("run.steps=4 run.seed=5 checkpoint.accept_changes=true"), 0) << output();
  EXPECT_TRUE(says("changed since: run.seed 0 -> 5")) << output();
  EXPECT_EQ(steps_of("a").size(), 4u);
}

/// Files of the inputs by name, with what takes their place; empty: there is none.
using Contents = std::map<std::string, std::string>;

class RunInputs : public RunStart {
 protected:
  void place(const Contents& contents) const {
    for (const auto& [name, text] : contents)
      if (text.empty())
        std::filesystem::remove(program_.path(name));
      else
        program_.write(name, text);
  }
  Contents now(const Contents& like) const {
    Contents contents;
    for (const auto& [name, unused] : like) contents[name] = exists(name) ? program_.read(name) : "";
    return contents;
  }
  std::string with(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = program_.read(file);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << file << " has no " << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }
  /// A start that goes on sees the change, which is taken back then.
  void expect_refused(const Contents& change, const std::string& overrides) const {
    const std::string name = change.begin()->first;
    const Contents before = now(change);
    place(change);
    EXPECT_EQ(train(overrides), 64) << name << ": " << output();
    EXPECT_TRUE(says("changed since: ") && says(name) && says("digest ") &&
                says("checkpoint.accept_changes") && says("run.overwrite"))
        << name << ": " << output();
    place(before);
  }
};

TEST_F(RunInputs, AnotherContentUnderAPathIsRefused) {
  const std::string config = read("config.toml"), all = read("metrics.jsonl");
  const std::string rows = program_.read("data.jsonl");
  const std::string row = R"({"prompt":"And 1 plus 1?","answer":"2","response":"2"})"
                          "\n";
  const Contents changes[] = {
      {{"data.jsonl", row + rows.substr(rows.find('\n') + 1)}},
      {{"data.jsonl", rows + row}},
      {{"data.jsonl", rows.substr(rows.find('\n') + 1)}},
      {{"model/config.json", with("model/config.json", "10000.0", "20000.0")}},
      {{"model/generation_config.json", R"({"eos_token_id": 3})"}},
      {{"model/tokenizer.json", program_.read("model/tokenizer.json") + "\n"}},
      {{"model/tokenizer_config.json", ""}},
      {{"model/chat_template.jinja", "{{ messages[0].content }}"}},
  };
  for (const Contents& change : changes) expect_refused(change, "run.steps=4");
  EXPECT_TRUE(read("config.toml") == config && read("metrics.jsonl") == all);
  EXPECT_EQ(train("run.steps=4"), 0) << "all is as it was: " << output();
  EXPECT_FALSE(says("bytes, digest")) << output();
}

/// Where tokenizer_config.json does not number its tokens, older files of a folder do.
TEST_F(RunInputs, OlderFilesOfTokensAreInputs) {
  const std::string added = "model/added_tokens.json", map = "model/special_tokens_map.json";
  Json config = parse_json(program_.read("model/tokenizer_config.json"), "tokenizer_config.json");
  ASSERT_EQ(config.erase("added_tokens_decoder"), 1u);
  place({{"model/tokenizer_config.json", config.dump()},
         {added, R"({"<|im_start|>": 1})"},
         {map, R"({"eos_token": "<|im_end|>"})"}});
  ASSERT_EQ(train("run.name=b"), 0) << output();
  const Contents changes[] = {{{added, R"({"<|im_start|>": 1, "<|im_end|>": 2})"}},
                              {{added, ""}},
                              {{map, R"({"eos_token": "<|endoftext|>"})"}},
                              {{map, ""}}};
  for (const Contents& change : changes) expect_refused(change, "run.name=b run.steps=4");
  EXPECT_EQ(train("run.name=b run.steps=4"), 0) << "all is as it was: " << output();
  EXPECT_FALSE(says("bytes, digest")) << output();
}

TEST_F(RunInputs, AnotherContentIsAcceptedOnce) {
  program_.write("data.jsonl", sums(3));
  EXPECT_EQ(train("run.steps=4 checkpoint.accept_changes=true"), 0) << output();
  EXPECT_TRUE(says("changed since: data.train data.jsonl (")) << output();
  EXPECT_TRUE(read("events.jsonl").find(R"("key":"data.train","before":"data.jsonl ()") != std::string::npos);
  EXPECT_EQ(train("run.steps=5"), 0) << "the newest checkpoint knows it: " << output();
}

/// What is held out trains nothing: it is said, as another path is.
TEST_F(RunInputs, OtherPromptsOfAValidationAreSaid) {
  program_.write("held-out.jsonl", sums(2));
  const std::string validated =
      "run.name=v algorithm.name=grpo rollout.samples_per_prompt=2 'validation.data=[\"held-out.jsonl\"]' "
      "validation.every=2 ";
  ASSERT_EQ(train(validated), 0) << output();
  program_.write("held-out.jsonl", sums(3));
  EXPECT_EQ(train(validated + "run.steps=4"), 0) << output();
  EXPECT_TRUE(says("changed since: validation.data held-out.jsonl (")) << output();
}

TEST_F(RunInputs, AnotherPathToTheSameContentIsNoChange) {
  const std::string moved = "run.steps=4 model.path=models/same ",
                    same = moved + "data.train=data/same.jsonl ";
  std::filesystem::create_directories(program_.path("models"));
  std::filesystem::copy(program_.path("model"), program_.path("models/same"),
                        std::filesystem::copy_options::recursive);
  std::filesystem::create_directories(program_.path("data"));
  std::filesystem::copy(program_.path("data.jsonl"), program_.path("data/same.jsonl"));
  EXPECT_EQ(train(moved + "'data.train=[{path=\"data/same.jsonl\",weight=2}]'"), 64) << output();
  EXPECT_TRUE(says("data.train")) << "another weight: " << output();
  ASSERT_EQ(program_.run("train run.toml run.name=whole run.steps=4"), 0) << output();
  EXPECT_EQ(train(same), 0) << output();
  EXPECT_TRUE(says(R"(changed since: model.path "model" -> "models/same" (the same)")) << output();
  EXPECT_TRUE(says("(the same content)")) << output();
  EXPECT_EQ(metrics("a"), metrics("whole"));
  program_.write("models/same/config.json", with("model/config.json", "10000.0", "20000.0"));
  EXPECT_EQ(train(same), 64) << output();
  EXPECT_TRUE(says("models/same/config.json")) << output();
}

/// They know of no content: paths are compared, as ever.
TEST_F(RunInputs, CheckpointsThatHaveNoDigestsGoOn) {
  for (const int step : {1, 2, 3}) forget_inputs("a", step);
  std::filesystem::copy(program_.path("data.jsonl"), program_.path("same.jsonl"));
  EXPECT_EQ(train("run.steps=4 data.train=same.jsonl"), 64) << output();
  program_.write("data.jsonl", sums(3));
  EXPECT_EQ(train("run.steps=4"), 0) << output();
  program_.write("data.jsonl", sums(4));
  EXPECT_EQ(train("run.steps=5"), 64) << "the newest one knows: " << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
