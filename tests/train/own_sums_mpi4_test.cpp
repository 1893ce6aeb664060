// A toy axis: a unit of each layer is summed over other ranks than the rest of the model, as experts will be.
// Ranks in two pairs have the unit of their pair; the rest is the same on all four.

#include "src/train/gradient_reducer.h"
#include "src/train/optimizer.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

constexpr AxisSet kToy = Axis::cp;

class OwnSums : public OnRanks {
 protected:
  OwnSums()
      : all_(collectives_of_all()),
        pair_(test_world->make_collectives(rank() / 2, rank() % 2, Device::cpu, "toy", kTestWaitLimit)),
        alone_(test_world->make_collectives(rank(), 0, Device::cpu, "alone", kTestWaitLimit)),
        alone_control_(test_world->make_comm(rank(), 0, kTestWaitLimit)) {}

  static int rank() { return test_world->rank(); }
  static Ctx& ctx() {
    static TestCtx c(2);
    return c;
  }
  static Values read(const CTensor& t) { return decode(bytes_of(ctx(), t), t.dtype); }
  static void write(const Tensor& to, const Values& values) {
    std::memcpy(to.raw(), encode(values, to.dtype).data(), static_cast<size_t>(to.bytes()));
  }
  SumRanks over() const {
    return SumRanks([this](AxisSet axes) -> Collectives& { return axes == kToy ? *pair_ : *all_; });
  }

  static std::unique_ptr<ParameterStore> make(const UnitShards& shards) {
    auto store = std::make_unique<ParameterStore>();
    const auto add = [&](const std::string& name, const char* unit, int64_t number,
                         std::vector<int64_t> shape, AxisSet axes = kReplicas) {
      const int64_t rows = shape[0];
      store->add({.name = name,
                  .parts = {{name, rows}},
                  .shape = std::move(shape),
                  .unit = unit,
                  .unit_number = number,
                  .summed_over = axes});
    };
    add("embed", "embedding", 0, {7, 5});
    for (const int64_t layer : {1, 2}) {
      const char* const unit = layer == 1 ? "layers.0" : "layers.1";
      add(std::string(unit) + ".w", unit, layer, {9, 11});
      add(std::string(unit) + ".expert", unit, layer, {5, 7}, kToy);
      add(std::string(unit) + ".n", unit, layer, {13});
    }
    add("head", "head", 3, {6, 6});
    store->allocate(DType::f32, /*with_gradients=*/true, Device::cpu, shards);
    for (Parameter& p : store->list())
      write(p.value, normal_values(p.value.size(), seed(p) + (is_own(p) ? 1000 * (rank() / 2) : 0)));
    return store;
  }
  static bool is_own(const Parameter& p) { return p.spec.summed_over == kToy; }
  static uint64_t seed(const Parameter& p) { return static_cast<uint64_t>(p.offset); }
  /// Whole numbers, whose sums are exact.
  static Values made(int rank, const Parameter& p) {
    Values values;
    for (int64_t i = 0; i < p.value.size(); ++i)
      values.push_back(static_cast<double>((i * 7 + 11 * rank + static_cast<int64_t>(seed(p))) % 23 - 9));
    return values;
  }
  /// Over the ranks that have it.
  static Values sum_of(const Parameter& p, int pair) {
    Values sum(static_cast<size_t>(p.value.size()), 0.0);
    for (int r = 0; r < 4; ++r) {
      const Values own = made(r, p);
      for (size_t i = 0; i < sum.size() && (!is_own(p) || r / 2 == pair); ++i) sum[i] += own[i];
    }
    return sum;
  }
  void backward(ParameterStore& store) const {
    store.begin_update(ctx().lane);
    const ArenaScope scope(ctx().scratch);
    GradientReducer reducer(ctx(), store, over(), nullptr);
    reducer.begin_backward(ctx());
    for (auto unit = store.units().rbegin(); unit != store.units().rend(); ++unit) {
      for (Parameter& p : store.list())
        if (&store.units()[p.unit] == &*unit) p.take_write(), write(p.grad, made(rank(), p));
      reducer.after_backward(ctx(), *unit);
    }
    reducer.finish(ctx(), 1, 1);
  }

  std::unique_ptr<Collectives> all_, pair_, alone_;
  std::unique_ptr<Comm> alone_control_;
};

TEST_F(OwnSums, AUnitIsSummedAndUpdatedByTheRanksThatHaveIt) {
  const OptimizerConfig config{.lr = 0, .weight_decay = 0.1, .grad_clip = 0};
  for (const bool shards : {false, true}) {
    SCOPED_TRACE(shards ? "shards of gradients" : "whole gradients");
    const auto store =
                   make(shards ? UnitShards{.rank = rank(), .ranks = 4, .others = {{kToy, {rank() % 2, 2}}}}
                               : UnitShards{}),
               plain = make({});
    ASSERT_EQ(store->units().size(), 6u);
    EXPECT_EQ(store->group(1).size(), 2u);
    backward(*store);
    Optimizer optimizer(ctx(), *store, config, over()), one(ctx(), *plain, config, *alone_);
    double squares = 0;
    for (Parameter& p : plain->list()) {
      write(p.grad, sum_of(p, rank() / 2));
      for (int pair = 0; pair < (is_own(p) ? 2 : 1); ++pair)
        for (const double g : sum_of(p, pair)) squares += g * g;
    }
    double owned = 0;
    for (const OptimizerPiece& piece : optimizer.pieces()) {
      expect_same_bits(
          piece.parameter->spec.name, read(piece.grad),
          slice_rows(sum_of(*piece.parameter, rank() / 2), 1, piece.range.begin, piece.range.end));
      owned += is_own(*piece.parameter) ? static_cast<double>(piece.range.size()) : 0;
    }
    std::vector<double> elements{owned};
    comm_->all_reduce_sum(elements, "test: elements");
    EXPECT_EQ(elements[0], 2 * 2 * 35) << "two layers, one for each pair";
    EXPECT_NEAR(optimizer.step(ctx(), *comm_, 0.01), std::sqrt(squares), 1e-9 * std::sqrt(squares));
    one.step(ctx(), *alone_control_, 0.01);
    for (size_t i = 0; i < store->list().size(); ++i)
      expect_same_bits(store->list()[i].spec.name, read(store->list()[i].value),
                       read(plain->list()[i].value));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
