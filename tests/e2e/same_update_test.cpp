// The same update for any cut: one replayed GRPO step (KL and entropy on, responses of 0 to 17 tokens) in
// fp64 on 1 to 4 ranks with 3 token budgets gives the gradients and the loss of the others and of torch
// autograd; fewer samples than ranks too. The same command twice gives the same bytes. Through the program
// itself.

#include "tests/support/golden_case.h"
#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

const std::string kGolden = "tests/golden/replay/";
constexpr double kSame = 1e-12, kAutograd = 1e-9;
constexpr int kMaxRanks = 4;
constexpr int64_t kLongest = 27;  // rows of the longest sequence of the golden rollouts

const char* kConfig = R"(
run.name = "run"
run.steps = 1
run.dtype = "fp64"
model.context_tokens = 64
algorithm.kl_coef = 0.05
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 4
rollout.max_prompt_tokens = 10
rollout.max_new_tokens = 17
reward.functions = [{name = "gsm8k", method = "flexible", format_score = 0.1}]
)";

/// What one run says of its update.
struct Update {
  std::string dump;  // path of the gradients
  Json metrics;
};

/// Number of tensors of `actual` that were compared with `expected`; `worst` rises to the largest relative L2
/// error.
size_t compare_dumps(const std::string& actual, const std::string& expected, double tolerance,
                     double& worst) {
  const SafetensorsFile names(actual, actual);
  const GoldenFile left(actual), right(expected);
  EXPECT_EQ(left.size(), right.size());
  for (const auto& [name, info] : names.tensors()) {
    const std::vector<double> a = left.numbers(name), b = right.numbers(name);
    if (a.size() != b.size()) {
      ADD_FAILURE() << name << ": " << a.size() << " values and " << b.size();
      continue;
    }
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += (a[i] - b[i]) * (a[i] - b[i]);
      norm += b[i] * b[i];
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(difference / norm), tolerance) << name;
    worst = std::max(worst, std::sqrt(difference / norm));
  }
  return names.tensors().size();
}

class SameUpdate : public RunFixture {
 protected:
  void SetUp() override {
    std::filesystem::copy(kGolden + "model", program_.path("model"));
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(7));
  }

  void write_lines(const std::string& name, const std::vector<Json>& lines) const {
    std::string text;
    for (const Json& line : lines) text += line.dump() + "\n";
    program_.write(name, text);
  }
  std::vector<Json> golden_lines() const {
    const std::string path = kGolden + "rollouts.jsonl", all = read_file(path, 1 << 20);
    std::vector<Json> lines;
    for (size_t at = 0, end; (end = all.find('\n', at)) != std::string::npos; at = end + 1)
      lines.push_back(parse_json(all.substr(at, end - at), path));
    return lines;
  }

  struct Cut {
    int ranks;
    int64_t budget;
  };
  /// One for each cut.
  std::vector<Update> updates(const std::vector<Cut>& cuts, const std::string& file,
                              const std::string& keys = "") const {
    const auto name = [&](const Cut& cut) { return fmt::format("{}-{}-{}", file, cut.ranks, cut.budget); };
    std::vector<RanksRun> runs;
    for (const Cut& cut : cuts)
      runs.push_back(
          {cut.ranks, fmt::format("train run.toml run.name={0} train.max_tokens_per_microbatch={1} {2} "
                                  "--replay {3} --dump-gradients dump-{0}",
                                  name(cut), cut.budget, keys, file)});
    if (run_each(runs) != 0) throw std::runtime_error(output());
    std::vector<Update> made;
    for (const Cut& cut : cuts)
      made.push_back({program_.path("dump-" + name(cut) + "/update-000001.safetensors"),
                      program_.metrics(name(cut)).at(0)});
    return made;
  }
  /// The update for every cut against that of one rank and the smallest budget, which is returned.
  Update expect_same(const std::string& file, std::vector<Cut> cuts, const std::string& keys = "") const {
    cuts.insert(cuts.begin(), {1, kLongest});
    const std::vector<Update> all = updates(cuts, file, keys);
    const Update& first = all.front();
    EXPECT_GT(first.metrics.at("batch/num_microbatches"), 2);
    double worst = 0, worst_loss = 0;
    size_t compared = 0;
    for (size_t i = 1; i < cuts.size(); ++i) {
      SCOPED_TRACE(fmt::format("{} ranks, budget {}", cuts[i].ranks, cuts[i].budget));
      const Update& other = all[i];
      compared += compare_dumps(other.dump, first.dump, kSame, worst);
      for (const char* name :
           {"actor/loss", "actor/pg_loss", "actor/kl_loss", "actor/entropy", "actor/grad_norm"}) {
        const double expected = first.metrics.at(name), found = other.metrics.at(name);
        EXPECT_NEAR(found, expected, kSame * std::abs(expected)) << name;
        worst_loss = std::max(worst_loss, std::abs((found - expected) / expected));
      }
    }
    std::printf("%s: %zu tensors compared, largest error %.1e; losses %.1e\n", file.c_str(), compared, worst,
                worst_loss);
    return first;
  }
};

TEST_F(SameUpdate, EqualsAutogradForAnyRanksAndBudget) {
  write_lines("golden.jsonl", golden_lines());
  std::vector<Cut> cuts{{1, 2 * kLongest}, {1, 1024}};
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (const int64_t budget : {kLongest, 2 * kLongest, int64_t{1024}}) cuts.push_back({ranks, budget});
  const Update first = expect_same("golden.jsonl", cuts);
  double worst = 0;
  EXPECT_EQ(compare_dumps(first.dump, kGolden + "gradient-kl-in-loss.safetensors", kAutograd, worst), 24u);
  const Json golden = read_json_file(kGolden + "cases.json").at("kl-in-loss");
  EXPECT_NEAR(first.metrics.at("actor/loss"), golden.at("loss").get<double>(), kSame);
}

/// Adapters that are trained beside the model, which is the reference.
TEST_F(SameUpdate, OfAdaptersEqualsAutograd) {
  std::filesystem::copy(kGolden + "adapters", program_.path("adapters"));
  write_lines("adapters.jsonl", golden_lines());
  const Update first =
      expect_same("adapters.jsonl", {{1, 1024}, {2, kLongest}, {3, 2 * kLongest}}, "lora.path=adapters");
  double worst = 0;
  EXPECT_EQ(compare_dumps(first.dump, kGolden + "gradient-adapters.safetensors", kAutograd, worst), 20u);
}

/// Groups of 4, 3 and 2, of which some come without log-probs of policy and reference: the ranks compute
/// them.
TEST_F(SameUpdate, UnevenGroupsAndOwnLogprobs) {
  std::vector<Json> lines;
  for (Json& line : golden_lines()) {
    const int group = line.at("group"), sample = line.at("sample");
    if (sample >= 4 - group) continue;
    if (sample % 2 == 0) line.erase("logprobs");
    if (group > 0) line.erase("ref_logprobs");
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 9u);
  write_lines("uneven.jsonl", lines);
  const std::vector<Cut> cuts{{1, 1024}, {2, kLongest}, {3, 2 * kLongest}, {4, kLongest}};
  expect_same("uneven.jsonl", cuts, "algorithm.aggregation=seq-mean-token-mean");
  EXPECT_TRUE(logged("uneven.jsonl-1-1024", "groups of one: drop")) << "as algorithm.single_group is";
}

/// Older weights sampled some responses: a sequence's ratio and its weight are of all of its tokens, wherever
/// they lie.
TEST_F(SameUpdate, LossesAndWeightsOfWholeSequences) {
  std::vector<Json> lines = golden_lines();
  for (Json& line : lines) {
    const bool older = line.at("group") != 1;
    line["step"] = 3;
    line["policy_version"] = older ? Json{1, 1} : Json{2, 2};
  }
  const std::vector<Cut> cuts{{1, 1024}, {3, 2 * kLongest}, {4, kLongest}};
  write_lines("sequences.jsonl", lines);
  expect_same("sequences.jsonl", cuts, "algorithm.name=gspo algorithm.importance=sequence");
  write_lines("masked.jsonl", lines);
  expect_same(
      "masked.jsonl", cuts,
      "algorithm.name=reinforce++ algorithm.kl_coef=0.05 algorithm.importance=geometric "
      "algorithm.importance_form=mask 'algorithm.importance_bounds=[0.5,2]' algorithm.reject_mean_k3=0.5");
}

TEST_F(SameUpdate, FewerSamplesThanRanks) {
  const std::vector<Json> lines = golden_lines();
  write_lines("two.jsonl", {lines.at(0), lines.at(1)});
  double worst = 0;
  const Update one = updates({{1, 1024}}, "two.jsonl").front();
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    SCOPED_TRACE(ranks);
    const Update many = updates({{ranks, 1024}}, "two.jsonl").front();
    EXPECT_EQ(compare_dumps(many.dump, one.dump, kSame, worst), 24u);
    EXPECT_NEAR(many.metrics.at("actor/loss"), one.metrics.at("actor/loss").get<double>(), kSame);
  }
  std::printf("two samples on up to %d ranks: largest error %.1e\n", kMaxRanks, worst);
}

/// A generated step with its roles placed otherwise: the same rollouts, and the same gradients from 1 to 3
/// trainer ranks.
TEST_F(SameUpdate, GeneratedStepInPlacementsWithOtherNumbersOfTrainerRanks) {
  ASSERT_EQ(program_.init_model("tiny"), 0) << output();
  const std::vector<std::pair<int, std::string>> placements = {
      {1, ""},
      {3, R"(roles.rollout.ranks='"0"' roles.reference.ranks='"1"' roles.trainer.ranks='"2"')"},
      {4, R"(roles.rollout.ranks='"0"' roles.reference.ranks='"1"' roles.trainer.ranks='"2-3"')"},
      {3, R"(roles.rollout.ranks='"0-1"' roles.reference.ranks='"2"' roles.trainer.ranks='"2"')"},
      {4, R"(roles.rollout.ranks='"0-2"' roles.reference.ranks='"0"' roles.trainer.ranks='"1-3"')"}};
  const auto name = [](size_t run) { return fmt::format("placed-{}", run); };
  std::vector<RanksRun> runs;
  for (const auto& [ranks, keys] : placements)
    runs.push_back({ranks, fmt::format("train run.toml run.name={0} model.path=tiny "
                                       "checkpoint.export_hf_every=0 {1} --dump-gradients dump-{0}",
                                       name(runs.size()), keys)});
  ASSERT_EQ(run_each(runs), 0) << output();
  double worst = 0;
  for (size_t i = 0; i < placements.size(); ++i) {
    SCOPED_TRACE(placements[i].second);
    EXPECT_EQ(rollouts(name(i), 1), rollouts(name(0), 1));
    const auto dump = [&](size_t run) {
      return program_.path("dump-" + name(run) + "/update-000001.safetensors");
    };
    EXPECT_GT(compare_dumps(dump(i), dump(0), kSame, worst), 20u);
  }
  std::printf("placements with 1 to 3 trainer ranks: largest error %.1e\n", worst);
}

TEST_F(SameUpdate, TwiceTheSameBytes) {
  ASSERT_EQ(program_.init_model("tiny"), 0) << output();
  for (const char* name : {"once", "twice"}) {
    const std::string keys =
        "run.steps=2 model.path=tiny train.updates_per_step=2 train.epochs_per_step=2 "
        "checkpoint.export_hf_every=2";
    ASSERT_EQ(program_.run_ranks(
                  3, fmt::format("train run.toml run.name={0} {1} --dump-gradients dump-{0}", name, keys)),
              0)
        << output();
  }
  EXPECT_EQ(program_.metrics("once").size(), 2u);
  EXPECT_GT(program_.metrics("once").at(0).at("actor/grad_norm"), 0);
  EXPECT_EQ(metrics("once"), metrics("twice"));
  const auto same = [&](const std::string& once, const std::string& twice) {
    EXPECT_EQ(program_.read(once), program_.read(twice)) << once;
  };
  for (int update = 1; update <= 8; ++update) {
    const std::string file = fmt::format("/update-{:06d}.safetensors", update);
    same("dump-once" + file, "dump-twice" + file);
  }
  for (const int step : {1, 2}) same(rollout_file("once", step), rollout_file("twice", step));
  EXPECT_EQ(exported_weights("once", 2), exported_weights("twice", 2));
  EXPECT_NE(exported_weights("once", 2), program_.read("tiny/model.safetensors"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
