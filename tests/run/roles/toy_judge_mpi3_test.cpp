// A scorer that is added by a file and its rows, with a model of its own, in whole runs: on every rank, and
// on ranks of its own that share the model. Where it runs and how changes no bit.

#include "src/core/split.h"
#include "src/run/host/model_host.h"
#include "tests/run/roles/toy_judge.h"
#include "tests/run/roles/toy_run.h"

namespace temper {
namespace {

class ToyJudge : public ToyRun {
 protected:
  ToyJudge() {
    if (comm_->rank() == 0) {
      Json other = parse_json(kTinyQwen3, "config");
      other["hidden_size"] = 48;
      other["num_hidden_layers"] = 3;
      write_file_atomic(folder_ + "/judge.json", other.dump());
    }
    make_model(7);
    rows_.assign(built_in_roles().begin(), built_in_roles().end());
    rows_.push_back(kJudgeRow);
    traits_ = role_traits_with_judge();
  }

  void make_model(uint64_t seed) const {
    if (comm_->rank() == 0) {
      std::filesystem::remove_all(folder_ + "/judge");
      init_model_folder(
          folder_ + "/judge.json", folder_ + "/judge", parameter_specs,
          {.seed = seed, .dtype = "fp32", .tokenizer_folder = "tests/golden/tokenizer/minimind"});
    }
    comm_->barrier("test: the judge's model is there");
  }

  std::vector<std::string> keys(const std::string& more = "") const {
    std::vector<std::string> all{"roles.judge.path=" + folder_ + "/judge", "rollout.tokens_per_step=0"};
    if (!more.empty())
      for (const std::string& key : split(more, ' ')) all.push_back(key);
    return all;
  }

  /// What one rank says with the whole model of the judge.
  void expect_judged(const std::string& name) const {
    ModelHost host(Device::cpu, DType::f32, 1);
    PassOptions pass;
    pass.token_budget = 1000;
    const std::unique_ptr<Model> model = host.load({.folder = folder_ + "/judge"});
    for (int64_t step = 1; step <= kToySteps; ++step)
      for (const Json& sample : rollouts(name, step)) {
        Trajectory t;
        t.prompt_tokens = sample.at("prompt_tokens").get<std::vector<int32_t>>();
        t.response.tokens = sample.at("response_tokens").get<std::vector<int32_t>>();
        t.response.mask.assign(t.response.tokens.size(), 1);
        const std::vector<const Trajectory*> one{&t};
        const std::vector<double> logprobs = local_logprobs(host.ctx(), *model, one, pass).front();
        double sum = 0;
        for (const double l : logprobs) sum += l;
        EXPECT_EQ(sample.at("reward_parts").at("judge").get<double>(),
                  sum / static_cast<double>(logprobs.size()))
            << name << ", step " << step;
      }
  }
};

TEST_F(ToyJudge, HasAModelOfItsOwnWhereverItRuns) {
  const std::string apart = "roles.rollout.ranks='0' roles.trainer.ranks='0' roles.reference.ranks='0' ";
  ASSERT_EQ(train("shared", false, keys(apart + "roles.judge.ranks='1-2' roles.judge.tp=2")), 0);
  ASSERT_EQ(train("staged", false, keys(apart + "roles.judge.ranks='1-2' roles.judge.pp=2")), 0);
  ASSERT_EQ(train("beside", false, keys(apart + "roles.judge.ranks='0' cluster.idle_ranks=allow")), 0);
  if (comm_->rank() != 0) return;
  expect_judged("shared");
  for (const char* other : {"staged", "beside"})
    for (int64_t step = 1; step <= kToySteps; ++step)
      EXPECT_TRUE(rollouts("shared", step) == rollouts(other, step)) << other << ", step " << step;
}

TEST_F(ToyJudge, GoesOnAfterStops) {
  const std::vector<std::string> all = keys(
      "roles.judge.ranks='1-2' roles.judge.tp=2 roles.rollout.ranks='0' "
      "roles.trainer.ranks='0' roles.reference.ranks='0'");
  ASSERT_EQ(train("whole", false, all), 0);
  for (int64_t step = 1; step <= kToySteps; ++step)
    ASSERT_EQ(train("stopped", true, all), static_cast<int>(step < kToySteps ? Exit::retry : Exit::ok));
  if (comm_->rank() != 0) return;
  for (int64_t step = 1; step <= kToySteps; ++step)
    EXPECT_TRUE(rollouts("whole", step) == rollouts("stopped", step)) << step;
}

/// Also by the ranks that do not have it: the one that writes checkpoints among them.
TEST_F(ToyJudge, OtherWeightsUnderItsPathAreRefused) {
  std::vector<std::string> all = keys(
      "roles.judge.ranks='1-2' roles.rollout.ranks='0' roles.trainer.ranks='0' roles.reference.ranks='0'");
  const auto go_on_to = [&](int64_t steps) {
    all.push_back(fmt::format("run.steps={}", steps));
    return train("run", false, all);
  };
  ASSERT_EQ(go_on_to(1), 0);
  make_model(8);
  expect_error(Exit::usage,
               {"the weights of a model folder", "roles.judge.path = ", "/judge (checkpoint", "digest",
                "checkpoint.accept_changes"},
               "other weights", [&] { go_on_to(2); });
  comm_->barrier("test: every rank was refused");
  all.push_back("checkpoint.accept_changes=true");
  ASSERT_EQ(go_on_to(2), 0);
  all.back() = "checkpoint.accept_changes=false";
  ASSERT_EQ(go_on_to(3), 0) << "the newest checkpoint knows it";
}

/// The plan knows its model: another shape, on its ranks, in its phase.
TEST_F(ToyJudge, IsInThePlan) {
  const LoadedConfig loaded = load("plan", keys("roles.judge.tp=2 roles.judge.ranks='0-1'"));
  const RunPlan plan = make_plan(loaded, 3, read_run_models(loaded.config));
  const RolePlan& judge = *plan.role("judge");
  EXPECT_EQ(judge.tp(), 2);
  EXPECT_EQ(judge.parts().back().end, 3);
  std::vector<int> ranks;
  for (const MemoryRow& row : plan.memory) {
    if (row.phase != "judge") continue;
    EXPECT_GT(MemoryRow::bytes_of(row.host, "judge_weights"), 0);
    ranks.insert(ranks.end(), row.ranks.begin(), row.ranks.end());
  }
  EXPECT_EQ(ranks, judge.ranks);
  expect_error(Exit::usage, {"roles.judge.cp"}, "a key that its row lacks",
               [&] { load("plan", keys("roles.judge.cp=2")); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 3); }
