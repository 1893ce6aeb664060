// Each name of algorithm.name mends what the demo's careless teacher taught, with several updates a step,
// where their losses differ, and so do adapters; from the answers of other problems nothing is learned. A
// student comes as far as its teacher.

#include "src/config/methods.h"

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

/// The runs of all tests lie in one folder, beside the model that they begin with and that the first test
/// makes: each test can be run alone.
class Methods : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { program_.reset(); }

  /// The demo's data, and a model that is right in two of five.
  void SetUp() override {
    if (program_ != nullptr) return;
    program_ = std::make_unique<Program>();
    const std::string root = std::filesystem::current_path().string();
    const int made = program_->shell(
        fmt::format("ln -s {0}/conf conf && {0}/tools/demo_data.sh runs/demo/data && {1} init "
                    "--config conf/demo/config.json --tokenizer conf/demo --out runs/demo/model "
                    "--seed 1",
                    root, program_->temper()));
    ASSERT_EQ(made, 0) << output();
    ASSERT_EQ(program_->run_ranks(2, "train conf/demo_sft.toml log.samples_per_step=0"), 0) << output();
  }

  static std::string output() { return program_->output(); }
  /// Empty before the run has ended.
  static std::string exported(const std::string& name) {
    const std::string folder = fmt::format("runs/{}/export", name);
    if (!path_exists(program_->path(folder))) return "";
    return join_path(folder, list_directory(program_->path(folder)).back());
  }
  /// On held-out problems, greedy.
  static double accuracy(const std::string& name) {
    const std::string key = "\"val/heldout/score/mean\":", folder = exported(name);
    const std::string model = path_exists(program_->path(folder + "/adapter_config.json"))
                                  ? fmt::format("{} lora.path={}", kTaughtByTheTeacher, folder)
                                  : folder;
    EXPECT_EQ(program_->run_ranks(2, "eval conf/demo_grpo.toml model.path=" + model), 0) << output();
    const size_t at = output().find(key);
    EXPECT_NE(at, std::string::npos) << output();
    const double found = at == std::string::npos ? 0 : std::stod(output().substr(at + key.size()));
    std::fprintf(stderr, "%s: held-out accuracy %.3f\n", name.c_str(), found);
    return found;
  }
  /// After a run with these keys, which is made once.
  static double accuracy_after(const std::string& name, const std::string& config, const std::string& keys) {
    if (exported(name).empty()) {
      const int code = program_->run_ranks(
          2, fmt::format("train {} model.path={} run.name={} log.samples_per_step=0 run.steps={} {}", config,
                         kTaughtByTheTeacher, name, kSteps, keys));
      EXPECT_EQ(code, 0) << output();
    }
    return accuracy(name);
  }
  /// After a run that ends when it has learned enough.
  static double learned(const std::string& name, const std::string& keys) {
    return accuracy_after(name, "conf/demo_grpo.toml",
                          fmt::format("run.stop_when.metric=val/heldout/score/mean "
                                      "run.stop_when.at_least={} {}",
                                      kEnough, keys));
  }
  static double learned_by(const AlgorithmTraits& method) {
    const std::string name(method.name);
    return learned(
        name,
        fmt::format("algorithm.name={} {}", name,
                    method.generates ? kSeveral : "data.response_key=answer train.samples_per_update=128 "));
  }

  static constexpr int kSteps = 120;  // at most
  static constexpr double kEnough = 0.93;
  static constexpr const char* kTaughtByTheTeacher = "runs/demo-sft/export/step-000700";
  static constexpr const char* kSeveral = "train.updates_per_step=4 optimizer.lr=3e-4 ";
  static inline std::unique_ptr<Program> program_;
};

class EachMethod : public Methods, public ::testing::WithParamInterface<AlgorithmTraits> {};

TEST_P(EachMethod, LearnsTheDemo) { EXPECT_GE(learned_by(GetParam()), 0.9); }

INSTANTIATE_TEST_SUITE_P(All, EachMethod, ::testing::ValuesIn(kAlgorithms), [](const auto& tested) {
  std::string name(tested.param.name);
  std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
  std::replace(name.begin(), name.end(), '+', 'p');
  return name;
});

TEST_F(Methods, AdaptersLearnTheDemo) {
  EXPECT_GE(learned("lora", "lora.rank=16 train.updates_per_step=4 optimizer.lr=2e-3"), 0.9);
}

TEST_F(Methods, AStudentComesAsFarAsItsTeacher) {
  const double teacher = learned_by(algorithm_traits("grpo"));
  std::string alone = program_->read("conf/demo_grpo.toml");
  const std::string rewards = "[reward]\nfunctions = [\"exact\"]\n";
  ASSERT_NE(alone.find(rewards), std::string::npos);
  program_->write("alone.toml", alone.erase(alone.find(rewards), rewards.size()));
  const std::string taught = fmt::format(
      "roles.teacher.path={} rollout.samples_per_prompt=1 rollout.prompts_per_step=512 "
      "validation.every=0 {}",
      exported("grpo"), kSeveral);
  EXPECT_GE(accuracy_after("taught", "alone.toml", taught), teacher - 0.02);
}

TEST_F(Methods, NothingIsLearnedFromAnswersOfOtherProblems) {
  const std::string train = program_->read("runs/demo/data/train.jsonl");
  std::vector<Json> lines;
  for (size_t at = 0; at < train.size(); at = train.find('\n', at) + 1)
    lines.push_back(parse_json(train.substr(at, train.find('\n', at) - at), "train.jsonl"));
  std::string shuffled;
  for (size_t i = 0; i < lines.size(); ++i)
    shuffled += dump_json_line(
                    {{"prompt", lines[i]["prompt"]}, {"answer", lines[(i + 1) % lines.size()]["answer"]}}) +
                "\n";
  program_->write("shuffled.jsonl", shuffled);
  EXPECT_LT(learned("shuffled", std::string("algorithm.name=grpo data.train=shuffled.jsonl ") + kSeveral),
            0.5);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
