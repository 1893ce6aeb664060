// A role that annotates, learns from whole steps and keeps state, on ranks of its own or not, in whole runs:
// where it runs, how its model is shared and where the run was stopped changes no bit of what it says.

#include "src/core/split.h"
#include "tests/run/roles/toy_critic.h"
#include "tests/run/roles/toy_run.h"

namespace temper {
namespace {

constexpr const char* kApart =
    "roles.rollout.ranks='0' roles.trainer.ranks='0-1' roles.reference.ranks='1' roles.valuer.ranks='2-3' ";

constexpr const char* kBeside =
    "roles.rollout.ranks='0' roles.trainer.ranks='0-1' roles.reference.ranks='1' roles.valuer.ranks='0-1' "
    "cluster.idle_ranks=allow ";

class ToyCritic : public ToyRun {
 protected:
  ToyCritic() {
    if (comm_->rank() == 0) {
      Json other = parse_json(kTinyQwen3, "config");
      other["hidden_size"] = 48;
      other["num_hidden_layers"] = 3;
      write_file_atomic(folder_ + "/critic.json", other.dump());
      init_model_folder(folder_ + "/critic.json", folder_ + "/critic", 7, "fp32",
                        "tests/golden/tokenizer/minimind", parameter_specs, 1);
    }
    comm_->barrier("test: the critic's model is there");
    rows_.assign(built_in_roles().begin(), built_in_roles().end());
    rows_.push_back(kCriticRow);
    traits_ = role_traits_with_critic();
  }

  std::vector<std::string> keys(const std::string& more) const {
    std::vector<std::string> all = split(more, ' ');
    std::erase(all, "");
    all.push_back("roles.valuer.path=" + folder_ + "/critic");
    return all;
  }

  double said(const std::string& name, int64_t step) const {
    const std::vector<Json> samples = rollouts(name, step);
    return samples.at(0).at("reward_parts").at("valuer").get<double>();
  }
  void expect_same(const std::string& a, const std::string& b) const {
    for (int64_t step = 1; step <= kToySteps; ++step)
      EXPECT_EQ(Json(rollouts(a, step)).dump(), Json(rollouts(b, step)).dump())
          << a << " and " << b << ", step " << step;
  }
  /// The policy is the same; what the critic says is, up to how gradients are rounded in another layout.
  void expect_alike(const std::string& a, const std::string& b) const {
    for (int64_t step = 1; step <= kToySteps; ++step) {
      std::vector<Json> of_a = rollouts(a, step), of_b = rollouts(b, step);
      ASSERT_EQ(of_a.size(), of_b.size()) << a << " and " << b << ", step " << step;
      for (size_t i = 0; i < of_a.size(); ++i) {
        Json &in_a = of_a[i].at("reward_parts").at("valuer"), &in_b = of_b[i].at("reward_parts").at("valuer");
        EXPECT_NEAR(in_a.get<double>(), in_b.get<double>(), 1e-4) << a << " and " << b << ", step " << step;
        in_a = in_b = nullptr;
        EXPECT_TRUE(of_a[i] == of_b[i]) << a << " and " << b << ", step " << step;
      }
    }
  }
  /// Stopped after each step; `next`: the keys of each start.
  void train_with_stops(const std::string& name, const std::vector<std::string>& next) const {
    for (int64_t step = 1; step <= kToySteps; ++step)
      ASSERT_EQ(train(name, true, keys(next[static_cast<size_t>(step - 1) % next.size()])),
                static_cast<int>(step < kToySteps ? Exit::retry : Exit::ok))
          << name << ", step " << step;
  }
};

TEST_F(ToyCritic, LearnsTheSameWhereverItRuns) {
  const std::string apart = kApart;
  ASSERT_EQ(train("shared", false, keys(apart + "roles.valuer.tp=2")), 0);
  ASSERT_EQ(train("staged", false, keys(apart + "roles.valuer.pp=2")), 0);
  ASSERT_EQ(train("copied", false, keys(apart + "roles.valuer.zero=2")), 0);
  const std::string beside = kBeside;
  ASSERT_EQ(train("beside", false, keys(beside + "roles.valuer.tp=2")), 0);
  ASSERT_EQ(train("mixed", false,
                  keys("roles.rollout.ranks='2-3' roles.trainer.ranks='1-2' roles.reference.ranks='1' "
                       "roles.valuer.ranks='0-1' roles.valuer.tp=2")),
            0);
  if (comm_->rank() != 0) return;
  EXPECT_NE(said("shared", 2), said("shared", kToySteps));
  expect_same("shared", "mixed");
  for (const char* other : {"staged", "copied", "beside"}) expect_alike("shared", other);
}

TEST_F(ToyCritic, GoesOnAfterStopsInOtherPlacements) {
  const std::string apart = kApart, beside = kBeside;
  ASSERT_EQ(train("whole", false, keys(apart + "roles.valuer.tp=2")), 0);
  train_with_stops("stopped", {apart + "roles.valuer.tp=2"});
  train_with_stops("moved",
                   {apart + "roles.valuer.tp=2", beside + "roles.valuer.pp=2", apart + "roles.valuer.zero=2"});
  if (comm_->rank() != 0) return;
  expect_same("whole", "stopped");
  expect_alike("whole", "moved");
}

/// Steps ahead are annotated when the critic stands there, also after a resume.
TEST_F(ToyCritic, GoesOnAfterStopsOfRunsWithStepsAhead) {
  const std::string ahead = std::string(kApart) + "roles.valuer.tp=2 run.max_policy_lag=2 run.steps=4 ";
  const std::string on_rollout =
      "roles.rollout.ranks='2-3' roles.trainer.ranks='0-1' roles.reference.ranks='1' "
      "roles.valuer.ranks='2-3' roles.valuer.tp=2 run.max_policy_lag=1 ";
  const std::string apart =
      "roles.rollout.ranks='0' roles.trainer.ranks='1' roles.reference.ranks='3' roles.valuer.ranks='2-3' "
      "roles.valuer.tp=2 run.max_policy_lag=1 checkpoint.every=2 ";
  const std::pair<const char*, std::string> runs[] = {
      {"ahead", ahead}, {"on_rollout", on_rollout}, {"apart", apart}};
  for (const auto& [name, with] : runs) {
    ASSERT_EQ(train(std::string(name) + "_whole", false, keys(with)), 0) << name;
    train_with_stops(std::string(name) + "_stopped", {with});
    if (comm_->rank() == 0) expect_same(std::string(name) + "_whole", std::string(name) + "_stopped");
  }
}

/// The plan knows what it holds: weights, gradients and optimizer of a model of another shape.
TEST_F(ToyCritic, IsInThePlan) {
  const LoadedConfig loaded = load("plan", keys("roles.valuer.tp=2 roles.valuer.ranks='0-1'"));
  const RunPlan plan = make_plan(loaded, 4, read_run_models(loaded.config));
  for (const MemoryRow& row : plan.memory) {
    if (row.phase != "valuer") continue;
    for (const char* part : {"valuer_weights", "valuer_gradients", "valuer_optimizer"})
      EXPECT_GT(MemoryRow::bytes_of(row.host, part), 0) << part;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
