// A loss of whole sequences through the trainer: its gradient is that of the loss, and does not depend on how
// the update is cut into micro-batches.

#include "tests/train/sequence_loss.h"

#include <gtest/gtest.h>

#include "src/comm/mpi_comm.h"
#include "src/models/layer_pass.h"
#include "src/ops/backend.h"
#include "src/train/trainer.h"
#include "tests/support/check_op.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

const MpiSession* mpi = nullptr;

constexpr int64_t kContext = 64;

std::vector<Trajectory> trajectories() {
  std::vector<Trajectory> list(6);
  for (size_t i = 0; i < list.size(); ++i) {
    Trajectory& t = list[i];
    t.prompt_tokens = random_ids(3 + static_cast<int64_t>(i), kTinyVocab, 10 + i);
    t.response.tokens = random_ids(2 + 3 * static_cast<int64_t>(i % 4), kTinyVocab, 20 + i);
    t.response.mask.assign(t.response.tokens.size(), 1);
    for (size_t k = 0; k < t.response.tokens.size(); ++k)
      t.response.logprobs.push_back(-3.0 - 0.1 * static_cast<double>(k));
    t.advantage = i % 2 == 0 ? 0.7 : -1.1;
  }
  return list;
}

class SequenceLoss : public ::testing::Test {
 protected:
  SequenceLoss() {
    model_ =
        std::make_unique<Model>(tiny_config(), ModelOptions{DType::f64, kContext, /*with_gradients=*/true});
    random_init(model_->parameters(), tiny_config(), 5);
    for (const Trajectory& t : list_) all_.push_back(&t);
    config_.name = kSequenceRatioRow.name;
    algorithm_ = make_algorithm(config_, {}, rows_);
  }

  /// Gradients of one update whose micro-batches have at most `budget` rows, and its loss; the weights stay.
  std::vector<double> gradients(int64_t budget, double& loss) {
    const auto comm = mpi->make_comm({0}, 60.0);
    const auto dp = mpi->make_collectives(0, 0, Device::cpu, "dp", 60.0);
    Trainer trainer(backend_.ctx(), *model_, *comm, *comm, *dp,
                    {.pass = {.token_budget = budget, .cost = {}}, .optimizer = {}, .total_updates = 1});
    std::vector<double> grads;
    trainer.set_gradient_hook([&](Ctx&, ParameterStore& store, int64_t) {
      const double* g = store.flat_grads().as<double>();
      grads.assign(g, g + store.num_elements());
    });
    const Tensor weights = model_->parameters().flat_values();
    const std::vector<double> before(weights.as<double>(), weights.as<double>() + weights.size());
    const PolicyObjective objective(*model_, *algorithm_, 1.0, 0);
    loss = trainer.update(backend_.ctx(), all_, objective).metrics.at("actor/loss");
    std::copy(before.begin(), before.end(), weights.as<double>());
    return grads;
  }

  Backend backend_{Device::cpu};
  std::unique_ptr<Model> model_;
  std::vector<Trajectory> list_ = trajectories();
  std::vector<const Trajectory*> all_;
  AlgorithmConfig config_;
  std::vector<AlgorithmRow> rows_ = [] {
    std::vector<AlgorithmRow> rows(built_in_algorithms().begin(), built_in_algorithms().end());
    rows.push_back(kSequenceRatioRow);
    return rows;
  }();
  std::unique_ptr<Algorithm> algorithm_;
};

TEST_F(SequenceLoss, DoesNotDependOnTheCut) {
  double loss = 0, other = 0;
  const std::vector<double> whole = gradients(1000, loss);
  for (const int64_t budget : {20, 33}) {
    expect_near("gradients", gradients(budget, other), whole, 1e-12);
    EXPECT_NEAR(other, loss, 1e-12);
  }
  EXPECT_GT(std::abs(loss), 1e-3);
}

TEST_F(SequenceLoss, GradientIsThatOfTheLoss) {
  double unused = 0;
  const std::vector<double> analytic = gradients(33, unused);
  double* weights = model_->parameters().flat_values().as<double>();
  int64_t compared = 0;
  for (const Parameter& p : model_->parameters().list()) {
    const int64_t at = p.offset + p.value.size() / 3;
    const double x = weights[at], h = 1e-5;
    double above = 0, below = 0;
    weights[at] = x + h;
    gradients(1000, above);
    weights[at] = x - h;
    gradients(1000, below);
    weights[at] = x;
    EXPECT_NEAR(analytic[static_cast<size_t>(at)], (above - below) / (2 * h), 1e-7) << p.spec.name;
    compared += analytic[static_cast<size_t>(at)] != 0;
  }
  EXPECT_GT(compared, 15);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const temper::MpiSession session(&argc, &argv);
  temper::mpi = &session;
  return RUN_ALL_TESTS();
}
