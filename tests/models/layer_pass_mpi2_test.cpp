// A model in two ranges of layers on two ranks: the stream goes forward by send and recv, its gradient back,
// and both have the bits of one rank with all layers.

#include <cstring>

#include "src/models/layer_pass.h"
#include "src/ops/backend.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

constexpr int64_t kTokens = 37;

class LayerPassTest : public OnRanks {
 protected:
  Ctx ctx() { return {backend_.ctx().scratch, backend_.ctx().lane, {}, &saved_}; }

  Batch batch() const {
    return {view_of(tokens_.data(), {kTokens}), view_of(positions_.data(), {kTokens}),
            view_of(borders_.data(), {3})};
  }
  /// Random, the same on every rank.
  Tensor random(DType dtype, int64_t width, uint64_t seed) {
    const Tensor t = backend_.ctx().scratch.make({kTokens, width}, dtype);
    const std::vector<double> values = normal_values(t.size(), seed);
    dispatch_storage(dtype, [&](auto s) {
      using S = decltype(s);
      for (int64_t i = 0; i < t.size(); ++i)
        t.as<S>()[i] = S(static_cast<Accumulate<S>>(values[static_cast<size_t>(i)]));
    });
    return t;
  }
  static std::unique_ptr<Model> make(DType dtype, const LayerRanges& layers) {
    return std::make_unique<Model>(tiny_config(), ModelOptions{dtype, 64, true, Device::cpu, layers});
  }
  /// The values of the parameters of `to`, by name.
  static void copy_values(Model& to, const Model& from) {
    for (Parameter& p : to.parameters().list())
      for (const Parameter& q : from.parameters().list())
        if (p.spec.name == q.spec.name && p.value.size() > 0)
          std::memcpy(p.value.raw(), q.value.data, static_cast<size_t>(q.value.bytes()));
  }

  Backend backend_{Device::cpu};
  Arena saved_;
  std::unique_ptr<Collectives> pp_ = collectives_of_all();
  std::vector<int32_t> tokens_ = random_ids(kTokens, kTinyVocab, 3);
  std::vector<int32_t> positions_ = [] {
    std::vector<int32_t> p;
    for (int32_t i = 0; i < kTokens; ++i) p.push_back(i < 20 ? i : i - 20);
    return p;
  }();
  std::vector<int32_t> borders_{0, 20, kTokens};
};

void expect_equal(const char* what, const CTensor& got, const CTensor& want) {
  ASSERT_EQ(got.bytes(), want.bytes()) << what;
  EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<size_t>(got.bytes())), 0) << what;
}

TEST_F(LayerPassTest, TwoStagesHaveTheBitsOfOne) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Ctx c = ctx();
    ArenaScope scratch(c.scratch), saved_scope(saved_);
    const auto whole = make(dtype, {});
    random_init(whole->parameters(), tiny_config(), 5);
    const Tensor dhidden = random(dtype, tiny_config().hidden_size, 9);
    PassSaved saved_whole;
    const Tensor want = forward_pass(c, *whole, batch(), &saved_whole);
    backward_pass(c, *whole, batch(), dhidden, saved_whole, nullptr);

    const bool first = comm_->rank() == 0;
    const auto stage = make(dtype, {first ? LayerRange{0, 1} : LayerRange{1, 2}});
    copy_values(*stage, *whole);
    PassSaved saved;
    if (first) {
      const Tensor y = c.scratch.like(dhidden), dy = c.scratch.like(dhidden);
      forward_stage(c, *stage, batch(), {}, &saved, y);
      pp_->send(c, y, 1, "stream to the next stage");
      pp_->recv(c, dy, 1, "gradient from the next stage");
      backward_pass(c, *stage, batch(), dy, saved, nullptr);
    } else {
      const Residual x{saved_.like(dhidden), {}};
      const Tensor dx = c.scratch.like(dhidden);
      pp_->recv(c, x.stream, 0, "stream of the stage before");
      expect_equal("hidden states", forward_pass(c, *stage, batch(), &saved, x), want);
      backward_pass(c, *stage, batch(), dhidden, saved, nullptr, dx);
      pp_->send(c, dx, 0, "gradient to the stage before");
    }
    size_t compared = 0;
    for (const Parameter& p : stage->parameters().list())
      for (const Parameter& q : whole->parameters().list())
        if (p.spec.name == q.spec.name && p.spec.name != "head" && p.value.size() > 0) {
          expect_equal(p.spec.name.c_str(), p.grad, q.grad);
          ++compared;
        }
    EXPECT_EQ(compared, first ? 9u : 9u);  // embedding or final norm, and a layer
  }
}

/// Told of every unit once, in the order of backward, when its gradients are there.
TEST_F(LayerPassTest, TheWatcherSeesUnitsInTheOrderOfBackward) {
  struct Recorder : LayerWatcher {
    std::vector<std::string> units;
    void after_backward(Ctx&, const Unit& unit) override { units.push_back(unit.name); }
  } recorder;
  Ctx c = ctx();
  const auto model = make(DType::f32, {});
  random_init(model->parameters(), tiny_config(), 5);
  PassSaved saved;
  forward_pass(c, *model, batch(), &saved);
  backward_pass(c, *model, batch(), random(DType::f32, tiny_config().hidden_size, 9), saved, &recorder);
  EXPECT_EQ(recorder.units, (std::vector<std::string>{"head", "layers.1", "layers.0", "embedding"}));
  EXPECT_EQ(model->parameters().units().size(), recorder.units.size());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
