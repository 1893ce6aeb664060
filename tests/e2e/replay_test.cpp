// One whole update from a rollout file, in fp64, against torch autograd in fp64 (tests/golden/replay, made by
// tools/golden/golden.py): advantages, ratio clipping, KL, entropy bonus, aggregation, packing, model and
// head.

#include <gtest/gtest.h>

#include "src/comm/mpi_comm.h"
#include "src/core/json.h"
#include "src/ops/backend.h"
#include "src/rl/registry.h"
#include "src/rl/trajectory_json.h"
#include "src/train/trainer.h"
#include "tests/support/golden_case.h"

namespace temper {
namespace {

const std::string kFolder = "tests/golden/replay";
constexpr int64_t kContext = 64;
constexpr double kGradientTolerance = 1e-9, kLossTolerance = 1e-10;
const MpiSession* mpi = nullptr;

AlgorithmConfig algorithm_of(const Json& golden) {
  AlgorithmConfig config;
  config.name = golden.at("name");
  config.aggregation = golden.at("aggregation");
  config.kl_coef = golden.at("kl_coef");
  config.entropy_coef = golden.at("entropy_coef");
  return config;
}

class Replay : public ::testing::TestWithParam<const char*> {
 protected:
  Replay() : golden_(read_json_file(kFolder + "/cases.json").at(GetParam())) {}

  /// The update with at most `token_budget` rows per micro-batch; gradients are checked in the hook.
  UpdateStats update(int64_t token_budget) {
    const auto model = load_model(kFolder + "/model", DType::f64, kContext);
    const bool forks = std::string(GetParam()).starts_with("forks-");
    std::vector<Group> groups =
        read_rollouts(kFolder + (forks ? "/rollouts-forks.jsonl" : "/rollouts.jsonl"),
                      {.vocab_size = model->config().vocab_size, .context_tokens = kContext});
    const auto algorithm = make_algorithm(algorithm_of(golden_));
    algorithm->advantages(groups);
    std::vector<const Trajectory*> all;
    for (const Group& group : groups)
      for (const Trajectory& t : group.samples) all.push_back(&t);

    const auto comm = mpi->make_comm({0}, 60.0);
    TrainerOptions options;
    options.pass.token_budget = token_budget;
    options.optimizer.lr = 1e-3;
    options.total_updates = 1;
    const auto tensors = mpi->make_collectives(0, 0, Device::cpu, "dp", 60.0);
    Backend backend(Device::cpu);
    Trainer trainer(backend.ctx(), *model, *comm, *comm, *tensors, options);
    const PolicyObjective objective(*model, *algorithm, options.pass.temperature,
                                    /*max_response_tokens=*/0);
    bool hooked = false;
    trainer.set_gradient_hook([&](Ctx& c, ParameterStore& parameters, int64_t) {
      const GoldenFile gradient(kFolder + "/gradient-" + GetParam() + ".safetensors");
      EXPECT_EQ(compare_gradients(c, parameters, gradient, "", kGradientTolerance, worst_), gradient.size());
      hooked = true;
    });
    Ctx& ctx = backend.ctx();
    const UpdateStats stats = trainer.update(ctx, all, objective);
    EXPECT_TRUE(hooked);
    EXPECT_EQ(stats.defect, "");
    return stats;
  }

  Json golden_;
  double worst_ = 0;
};

TEST_P(Replay, GradientAndLoss) {
  const bool sft = golden_.at("name") == "sft";
  for (const int64_t budget : {27, 1024}) {  // a few sequences per micro-batch; all in one
    SCOPED_TRACE(budget);
    const UpdateStats stats = update(budget);
    EXPECT_EQ(stats.num_microbatches > 1, budget == 27);
    const double loss = stats.metrics.at(sft ? "train/loss" : "actor/loss");
    EXPECT_NEAR(loss, golden_.at("loss").get<double>(), kLossTolerance);
    std::printf("%s, budget %ld: loss differs by %.1e, gradients by %.1e\n", GetParam(), budget,
                loss - golden_.at("loss").get<double>(), worst_);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Replay,
                         ::testing::Values("token-mean", "seq-mean-token-mean", "kl-in-loss",
                                           "kl-seq-mean-token-mean", "sft", "forks-token-mean",
                                           "forks-kl-seq-mean-token-mean"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ReplayFile, ClipsAndMasks) {
  const Json cases = read_json_file(kFolder + "/cases.json");
  EXPECT_GT(cases.at("token-mean").at("clipped").get<int>(), 0);
  int64_t masked = 0, uncounted = 0;
  for (const Group& group : read_rollouts(kFolder + "/rollouts.jsonl", {}))
    for (const Trajectory& t : group.samples) {
      masked += static_cast<int64_t>(t.response.tokens.size()) - t.counted_tokens();
      uncounted += t.counted_tokens() == 0;
    }
  EXPECT_GT(masked, 5);
  EXPECT_EQ(uncounted, 2);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const temper::MpiSession world(&argc, &argv);
  temper::mpi = &world;
  return RUN_ALL_TESTS();
}
