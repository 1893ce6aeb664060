// A layer of experts over 1, 2 and 4 ranks with tokens of their own, of which some have none, against one
// rank with all tokens: the bits of its outputs, its gradients within rounding, however tokens are routed;
// and where all ranks have the same tokens. What a rank gets at once is never more than was said before.

#include <array>

#include "src/nn/moe.h"
#include "src/nn/parallel/expert_parallel.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

constexpr int64_t kWidth = 16, kUnits = 24;

/// Which experts tokens like: any; the first one before all others; those of the last block.
enum class Liking { any, first, last };

struct Case {
  int64_t experts, per_token;
  Liking liking;
  std::array<int64_t, 4> tokens;  // by rank
};
constexpr Case kCases[] = {
    {8, 2, Liking::any, {30, 29, 31, 30}},  {8, 1, Liking::first, {40, 40, 40, 40}},
    {8, 2, Liking::first, {33, 0, 1, 20}},  {8, 8, Liking::any, {9, 4, 0, 3}},
    {4, 3, Liking::last, {25, 25, 60, 25}}, {16, 4, Liking::last, {0, 0, 70, 0}},
};

/// All parameters of a layer, whole or this rank's blocks.
struct Layer {
  Layer(const Case& of, DType dtype, Collectives* ep) {
    const MoeConfig config{.layers = {0},
                           .num_experts = of.experts,
                           .experts_per_token = of.per_token,
                           .expert_size = kUnits,
                           .normalizes = true};
    const Splits splits{.ep = ep};
    const auto add = [&](const char* name, int64_t rows, int64_t width) {
      ParamSpec spec{.name = name, .parts = {}, .shape = {of.experts * rows, width}, .unit = "layer"};
      for (int64_t e = 0; e < of.experts; ++e) spec.parts.push_back({fmt::format("{}{}", name, e), rows});
      if (rows > 1) spec.shard = Shard::experts;
      return &store.add(std::move(spec), splits.place());
    };
    const Moe::Parameters p{add("router", 1, kWidth), add("gate_up", 2 * kUnits, kWidth),
                            add("down", kWidth, kUnits)};
    store.allocate(dtype, /*with_gradients=*/true);
    for (uint64_t seed = 1; Parameter & of_layer : store.list()) fill(of, of_layer, seed++);
    moe.emplace(config, p, std::nullopt, ep);
  }
  /// The first column of tokens is large: it decides where they go.
  static void fill(const Case& of, const Parameter& p, uint64_t seed) {
    const int64_t width = p.spec.shape[1];
    Values all = normal_values(p.spec.size(), seed, 0.3);
    for (int64_t e = 0; p.spec.shard == Shard::none && e < of.experts; ++e) {
      const bool liked = of.liking == Liking::first ? e == 0 : e >= of.experts - of.experts / 4;
      if (of.liking != Liking::any && liked) all[static_cast<size_t>(e * width)] = 4;
    }
    Values own;
    for (const RowSpan& span : p.spans)
      own.insert(own.end(), all.begin() + span.whole * width, all.begin() + (span.whole + span.rows) * width);
    const std::vector<char> bytes = encode(own, p.value.dtype);
    std::memcpy(p.value.raw(), bytes.data(), bytes.size());
  }

  ParameterStore store;
  std::optional<Moe> moe;
};

class MoeRanks : public OnRanks {
 protected:
  Ctx& ctx() { return backend_.ctx(); }
  /// Rows of all ranks.
  Tensor rows_of_all(const Case& of, DType dtype, uint64_t seed, bool decides) {
    int64_t all = 0;
    for (const int64_t n : of.tokens) all += n;
    Values values = normal_values(all * kWidth, seed);
    for (int64_t t = 0; decides && t < all; ++t) values[static_cast<size_t>(t * kWidth)] = 2;
    const Tensor rows = memory_.make({all, kWidth}, dtype);
    const std::vector<char> bytes = encode(values, dtype);
    std::memcpy(rows.raw(), bytes.data(), bytes.size());
    return rows;
  }
  FlatRange own_rows(const Case& of) const {
    int64_t begin = 0;
    for (int rank = 0; rank < comm_->rank(); ++rank) begin += of.tokens[static_cast<size_t>(rank)];
    return {begin, begin + of.tokens[static_cast<size_t>(comm_->rank())]};
  }
  Values to_values(const CTensor& t) { return decode(bytes_of(ctx(), t), t.dtype); }
  /// y, dx, then gradients as they lie in the store.
  struct Made {
    Values y, dx;
    std::vector<Values> gradients;
  };
  Made run(const Layer& layer, const CTensor& x, const CTensor& dy, bool joins, bool keeps) {
    const StreamRows stream{x.dim(0), true};
    Made made;
    if (joins && x.dim(0) == 0) {
      layer.moe->join(ctx(), false);
      layer.moe->join(ctx(), true);
    } else {
      const ArenaScope scope(ctx().scratch);
      const Tensor y = ctx().scratch.like(x);
      MoeSaved saved;
      layer.moe->forward_into(ctx(), y, x, &saved, keeps ? Keep::all(memory_) : Keep{}, stream);
      made.y = to_values(y);
      if (keeps) made.dx = to_values(layer.moe->backward(ctx(), dy, x, saved, stream));
    }
    for (const Parameter& p : layer.store.list()) made.gradients.push_back(to_values(p.grad));
    return made;
  }
  void expect_like_one_rank(const Case& of, int ranks, DType dtype) {
    const Tensor x = rows_of_all(of, dtype, 7, true), dy = rows_of_all(of, dtype, 8, false);
    const FlatRange own = own_rows(of);
    Layer whole(of, dtype, nullptr);
    const Made want = run(whole, x, dy, false, true);
    const std::unique_ptr<Collectives> ep =
        test_world->make_collectives(comm_->rank() / ranks, comm_->rank(), Device::cpu, "ep", kTestWaitLimit);
    Layer layer(of, dtype, ep.get());
    for (Parameter& p : layer.store.list()) p.cleared = true;
    const Made got = run(layer, rows(x, own.begin, own.end), rows(dy, own.begin, own.end), true, true);
    const auto of_own = [&](const Values& all) {
      return Values(all.begin() + own.begin * kWidth, all.begin() + own.end * kWidth);
    };
    expect_same_bits("outputs", got.y, of_own(want.y));
    if (dtype != DType::f64) return expect_same_bits("gradients of inputs", got.dx, of_own(want.dx));
    expect_near("gradients of inputs", got.dx, of_own(want.dx), 1e-12);
    for (size_t i = 0; i < want.gradients.size(); ++i) expect_sums(layer, i, got, want);
  }
  /// Gradients of all ranks together are those of one.
  void expect_sums(Layer& layer, size_t number, const Made& got, const Made& want) {
    const Parameter& p = layer.store.list()[number];
    const int64_t width = p.spec.shape[1];
    std::vector<double> all(static_cast<size_t>(p.spec.size()), 0.0);
    for (const RowSpan& span : p.spans)
      for (int64_t i = 0; i < span.rows * width; ++i)
        all[static_cast<size_t>(span.whole * width + i)] =
            got.gradients[number][static_cast<size_t>(span.own * width + i)];
    comm_->all_reduce_sum(all, "test: gradients");
    expect_near(p.spec.name, all, want.gradients[number], 1e-12);
  }

  Backend backend_{Device::cpu};
  Arena memory_;
};

TEST_F(MoeRanks, HaveTheBitsOfOneRankHoweverTokensAreRouted) {
  for (const Case& of : kCases)
    for (const int ranks : {1, 2, 4})
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
        SCOPED_TRACE(fmt::format("{} of {} experts over {} ranks, liking {}, {}", of.per_token, of.experts,
                                 ranks, static_cast<int>(of.liking), dtype_name(dtype)));
        expect_like_one_rank(of, ranks, dtype);
        ASSERT_EQ(comm_->all_reduce_max(HasFailure() ? 1 : 0, "test: failures"), 0);
      }
}

/// As in a step of generation.
TEST_F(MoeRanks, WithTheSameTokensEachDoesItsExpertsRows) {
  for (const Case& of : kCases)
    for (const int ranks : {2, 4}) {
      const Tensor x = rows_of_all(of, DType::bf16, 7, true);
      Layer whole(of, DType::bf16, nullptr);
      const std::unique_ptr<Collectives> ep = test_world->make_collectives(
          comm_->rank() / ranks, comm_->rank(), Device::cpu, "ep", kTestWaitLimit);
      Layer layer(of, DType::bf16, ep.get());
      const Tensor want = memory_.like(x), got = memory_.like(x);
      whole.moe->forward_into(ctx(), want, x, nullptr);
      layer.moe->forward_into(ctx(), got, x, nullptr, {}, {x.dim(0), false});
      expect_same_bits("outputs", to_values(got), to_values(want));
    }
}

/// Every row of every token once, at the rank of its expert and back at its place; none gets more at once
/// than was said before; and one window is enough for an even load.
TEST_F(MoeRanks, RoutesAreWholeAndBounded) {
  for (const Case& of : kCases)
    for (int ranks : {1, 2, 4}) {
      ExpertChoices choices{of.experts, of.per_token, 0, {}};
      int64_t most = 0, all = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<int32_t>& ids = choices.ids.emplace_back();
        const int64_t tokens = of.tokens[static_cast<size_t>(rank)];
        most = std::max(most, tokens), all += tokens;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t j = 0; j < of.per_token; ++j)  // ascending, different
            ids.push_back(static_cast<int32_t>(
                of.liking == Liking::first
                    ? j
                    : of.experts - of.per_token + j -
                          (of.liking == Liking::any ? t % (of.experts - of.per_token + 1) : 0)));
      }
      int64_t total = 0;
      size_t windows = 0;
      for (choices.rank = 0; choices.rank < ranks; ++choices.rank) {
        const ExpertRoutes routes = route(choices);
        windows = routes.windows.size();
        std::vector<int32_t> places = routes.places;
        std::sort(places.begin(), places.end());
        for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(places[i], static_cast<int32_t>(i));
        for (const ExpertWindow& w : routes.windows) {
          EXPECT_LE(w.num_rows(), most_window_rows(most, of.per_token, ranks));
          EXPECT_EQ(w.offsets.back(), w.num_rows());
          total += w.num_rows();
        }
      }
      EXPECT_EQ(total, all * of.per_token);
      if (of.liking == Liking::first && ranks == 4 && of.per_token == 1) {
        EXPECT_GT(windows, 1u);
      }
      if (ranks == 1) {
        EXPECT_EQ(windows, 1u);
      }
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
