#include "src/ops/optimizer.h"

#include "src/core/json.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

struct State {
  Values weight, master, m, v;
};

/// The formats that hold masters of bf16 weights and moments.
struct Formats {
  bool remainder = false, bf16_moments = false;
};

/// One update of a weight with its own master (bf16) or one that is its own master; all of it decays unless
/// ranges are given.
State update(Ctx& c, DType dtype, const State& s, const Values& gradient, const AdamwStep& step,
             const std::vector<FlatRange>* ranges = nullptr, Formats formats = {}) {
  const int64_t n = static_cast<int64_t>(gradient.size());
  const std::vector<FlatRange> all{{0, n}};
  const DType a = accumulate_dtype(dtype);
  const ArenaScope scope(c.scratch);
  const DType masters = formats.remainder ? DType::u16 : a, moments = formats.bf16_moments ? DType::bf16 : a;
  TestTensor weight(c, s.weight, dtype, {n}), master(c, s.master, masters, {n}), m(c, s.m, moments, {n}),
      v(c, s.v, moments, {n});
  TestTensor grad(c, gradient, a, {n});
  Tensor own =
      dtype == DType::bf16 || formats.remainder ? static_cast<Tensor>(master) : static_cast<Tensor>(weight);
  adamw_step(c, weight, own, m, v, grad, ranges ? *ranges : all, step);
  return {weight.values(), dtype == DType::bf16 ? master.values() : weight.values(), m.values(), v.values()};
}

State start_of(const Values& values) {
  return {values, values, Values(values.size(), 0.0), Values(values.size(), 0.0)};
}

TEST(Adamw, EqualsTorch) {
  const Json cases = read_json_file("tests/golden/ops/adamw.json");
  ASSERT_GE(cases.size(), 2u);
  for (const Json& golden : cases) {
    TestCtx ctx;
    const Values start = golden["start"];
    State wide = start_of(start), narrow = start_of(start), half = start_of(start);
    for (size_t i = 0; i < golden["grads"].size(); ++i) {
      AdamwStep step{
          .lr = golden["lr"], .weight_decay = golden["weight_decay"], .count = static_cast<int64_t>(i) + 1};
      step.grad_scale = 0.25;
      Values gradient = golden["grads"][i];
      for (double& g : gradient) g *= 4.0;
      if (kTestDevice == Device::cpu) wide = update(ctx, DType::f64, wide, gradient, step);
      narrow = update(ctx, DType::f32, narrow, gradient, step);
      half = update(ctx, DType::bf16, half, gradient, step);
      if (kTestDevice == Device::cpu) expect_near("fp64 weight", wide.weight, golden["weights"][i], 1e-14);
      expect_near("fp32 weight", narrow.weight, golden["weights"][i], 2e-7);
      expect_same_bits("master of bf16", half.master, narrow.master);
    }
    expect_near("fp32 m", narrow.m, golden["m"], 1e-6);
    expect_near("fp32 v", narrow.v, golden["v"], 1e-6);
    if (kTestDevice != Device::cpu) continue;
    expect_near("m", wide.m, golden["m"], 1e-14);
    expect_near("v", wide.v, golden["v"], 1e-14);
  }
}

/// An update whose bits do not depend on what else is in the piece.
struct PieceUpdate {
  static constexpr int64_t n = 40000;
  const Values start = normal_values(n, 1), gradient = normal_values(n, 2);
  const AdamwStep step{.lr = 1e-3, .weight_decay = 0.1, .grad_scale = 0.3, .count = 5};
  Many operator()(Ctx& c, DType t, int64_t begin, int64_t end) const {
    State s = start_of(slice_rows(start, 1, begin, end));
    const State out = update(c, t, s, slice_rows(gradient, 1, begin, end), step);
    return {out.weight, out.master, out.m, out.v};
  }
};

TEST(Adamw, Pieces) { check_rows("adamw", 300, PieceUpdate{}); }

CPU_TEST(Adamw, Threads) {
  const PieceUpdate run;
  check_threads("adamw", {}, [&](Ctx& c, DType t, const Many&) { return run(c, t, 0, run.n); });
}

/// Every element has the bits of an update where all or none decays, wherever ranges and threads are cut.
TEST(Adamw, RangesThatDecay) {
  const int64_t n = 40000;
  const Values start = normal_values(n, 1), gradient = normal_values(n, 2);
  const AdamwStep step{.lr = 1e-3, .weight_decay = 0.1, .grad_scale = 0.3, .count = 5};
  const std::vector<FlatRange> none;
  std::vector<FlatRange> many;  // more than a kernel takes at once, of all sizes, some of them empty
  for (int64_t at = 3; at + 12 < n; at += 3 + at % 17) many.push_back({at, at + at % 4});
  for (DType dtype : kStorageTypes) {
    TestCtx one;
    const State with = update(one, dtype, start_of(start), gradient, step),
                without = update(one, dtype, start_of(start), gradient, step, &none);
    ASSERT_NE(with.master, without.master);
    for (const std::vector<FlatRange>& ranges :
         std::vector<std::vector<FlatRange>>{{{0, 16}},
                                             {{17, 17}, {39999, n}},
                                             {{3, 16384}, {16384, 16390}, {16400, 39000}},
                                             {{5, 6}, {7, 8}, {32768, n}},
                                             many})
      for (int threads : {1, 3}) {
        Values want = without.master;
        for (const FlatRange& r : ranges)
          std::copy(with.master.begin() + r.begin, with.master.begin() + r.end, want.begin() + r.begin);
        TestCtx ctx(threads);
        const State got = update(ctx, dtype, start_of(start), gradient, step, &ranges);
        expect_same_bits("master", got.master, want);
        expect_same_bits("m", got.m, with.m);
      }
  }
  TestCtx ctx;
  for (const std::vector<FlatRange>& wrong :
       std::vector<std::vector<FlatRange>>{{{0, n + 1}}, {{5, 9}, {8, 10}}, {{9, 5}}, {{-1, 3}}})
    EXPECT_THROW(update(ctx, DType::f32, start_of(start), gradient, step, &wrong), Error);
}

/// The weight and the low half of the master determine the master: bits = (weight << 16) + sign-extended low
/// half.
TEST(Adamw, MasterRoundsTiesAway) {
  TestCtx ctx;
  Values master = normal_values(5000, 3);
  for (uint32_t bits :
       {0x3f808000u, 0x3f818000u, 0xbf808000u, 0x3f807fffu, 0x3f808001u, 0x00008000u, 0x3fffffffu})
    master.push_back(std::bit_cast<float>(bits));
  master = round_to(master, DType::f32);
  const int64_t n = static_cast<int64_t>(master.size());
  TestTensor from(ctx, master, DType::f32, {n}), weight(ctx, DType::bf16, {n});
  round_master(ctx, weight, from);
  const Values got = weight.values();
  for (size_t i = 0; i < got.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(master[i]));
    const uint32_t rounded = std::bit_cast<uint32_t>(static_cast<float>(got[i]));
    EXPECT_EQ(rounded, (bits + 0x8000u) & 0xffff0000u) << master[i];
    EXPECT_EQ(rounded + static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(bits & 0xffffu))),
              bits);
  }
  for (DType dtype : kStorageTypes) {
    if (dtype == DType::bf16) continue;
    TestTensor same(ctx, master, dtype, {n}), copy(ctx, dtype, {n});
    round_master(ctx, copy, same);
    expect_same_bits("copy", copy.values(), master);
  }
}

uint32_t bits_of(double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); }
double from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

/// Gradients of all sizes, some of them zero.
Values wild_gradient(int64_t n, uint64_t seed) {
  Values gradient = normal_values(n, seed);
  const Values size = normal_values(n, seed + 1, 4.0);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] *= i % 11 == 0 ? 0.0 : std::exp(size[i]);
  return round_to(gradient, DType::f32);
}

/// 50 updates with the 16 bits that the weight lacks instead of a master: the master's bits at every update.
TEST(Adamw, RemainderIsTheMaster) {
  constexpr int64_t n = 2051;
  TestCtx ctx;
  State wide = start_of(round_to(normal_values(n, 1), DType::bf16)), half = wide;
  half.master = Values(n, 0.0);
  const std::vector<FlatRange> decays{{0, 700}, {1001, n}};
  for (int64_t count = 1; count <= 50; ++count) {
    const Values gradient = wild_gradient(n, 2 * static_cast<uint64_t>(count));
    const AdamwStep step{.lr = 3e-3, .weight_decay = 0.1, .grad_scale = 0.3, .count = count};
    wide = update(ctx, DType::bf16, wide, gradient, step, &decays);
    half = update(ctx, DType::bf16, half, gradient, step, &decays, {.remainder = true});
    Values joined(n);
    for (size_t i = 0; i < joined.size(); ++i)
      joined[i] = joined_master(static_cast<uint16_t>(bits_of(half.weight[i]) >> 16),
                                static_cast<uint16_t>(half.master[i]));
    expect_same_bits("weight", half.weight, wide.weight);
    expect_same_bits("master", joined, wide.master);
    expect_same_bits("m", half.m, wide.m);
    expect_same_bits("v", half.v, wide.v);
  }
}

CPU_TEST(Adamw, HalvesOfAMaster) {
  for (uint32_t high : {0u, 1u, 0x3f80u, 0x3fffu, 0x7f7fu, 0x8000u, 0xbf80u, 0xffffu})
    for (uint32_t low = 0; low < 0x10000u; ++low) {
      const uint32_t bits = (high << 16) | low;
      const float master = std::bit_cast<float>(bits);
      ASSERT_EQ(std::bit_cast<uint32_t>(joined_master(master_weight(master), master_remainder(master))),
                bits);
    }
}

/// bf16 moments are those of the update in fp32, rounded by the words that src/core/rng.h gives each element
/// of the model; the weight is of the unrounded ones. Pieces and threads change nothing.
TEST(Adamw, Bf16MomentsByTheirWords) {
  constexpr int64_t n = 34007, first = (int64_t{5} << 34) + 12;
  const AdamwStep step{.lr = 1e-2,
                       .weight_decay = 0.1,
                       .grad_scale = 0.3,
                       .count = 7,
                       .seed = 0x123456789abcdef0u,
                       .first_element = first};
  const Values gradient = wild_gradient(n, 5);
  const auto rounded = [&](double x, int64_t i, int shift) {
    const auto element = static_cast<uint64_t>(first + i);
    const uint32_t word = moment_words(step.seed, 7, element / 4)[element % 4];
    return from_bits((bits_of(x) + ((word >> shift) & 0xffffu)) & 0xffff0000u);
  };
  for (DType dtype : {DType::f32, DType::bf16}) {
    TestCtx ctx;
    State start = start_of(round_to(normal_values(n, 1), dtype));
    start.m = round_to(normal_values(n, 2, 0.1), DType::bf16);
    start.v = start.m;
    for (double& v : start.v) v *= v;
    start.v = round_to(start.v, DType::bf16);
    State want = update(ctx, dtype, start, gradient, step);
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      want.m[at] = rounded(want.m[at], i, 0);
      want.v[at] = rounded(want.v[at], i, 16);
    }
    const auto expect = [&](Ctx& c, int64_t begin, int64_t end) {
      const auto cut = [&](const State& s) {
        return State{slice_rows(s.weight, 1, begin, end), slice_rows(s.master, 1, begin, end),
                     slice_rows(s.m, 1, begin, end), slice_rows(s.v, 1, begin, end)};
      };
      AdamwStep part = step;
      part.first_element += begin;
      const State got = update(c, dtype, cut(start), slice_rows(gradient, 1, begin, end), part, nullptr,
                               {.bf16_moments = true}),
                  wanted = cut(want);
      expect_same_bits("weight", got.weight, wanted.weight);
      expect_same_bits("master", got.master, wanted.master);
      expect_same_bits("m", got.m, wanted.m);
      expect_same_bits("v", got.v, wanted.v);
    };
    TestCtx three(3);
    expect(ctx, 0, n);
    expect(three, 0, n);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{4, 5}, {16, 31}, {8188, 8230}, {20, n}})
      expect(ctx, begin, end);
  }
}

/// Elements that moments fall between two neighbours the same way: each is drawn as often as the value is
/// near it, m and v independently; over all values the mean error is that of so many draws.
TEST(Adamw, Bf16MomentsAreRightOnAverage) {
  constexpr int64_t n = 100000;
  TestCtx ctx;
  const Values zeros(n, 0.0);
  const auto moments = [&](const Values& gradient, int64_t count) {
    const AdamwStep step{.lr = 0, .beta1 = 0.5, .beta2 = 0.75, .count = count, .seed = 3};
    return update(ctx, DType::f32, start_of(zeros), gradient, step, nullptr, {.bf16_moments = true});
  };
  for (const double share : {0.125, 0.5, 0.9}) {
    // m = g / 2 lies at `share` between 1 and its neighbour, v = g^2 / 4 at `above` over 1 + k / 128
    const double m = 1 + share / 128, v = m * m;
    const State got = moments(Values(n, 2 * m), 1);
    const double low_v = std::floor(v * 128) / 128, above = (v - low_v) * 128;
    double up_m = 0, up_v = 0, both = 0;
    for (size_t i = 0; i < got.m.size(); ++i) {
      ASSERT_TRUE(got.m[i] == 1.0 || got.m[i] == 1 + 1.0 / 128) << got.m[i];
      ASSERT_TRUE(got.v[i] == low_v || got.v[i] == low_v + 1.0 / 128) << got.v[i];
      up_m += got.m[i] > 1;
      up_v += got.v[i] > low_v;
      both += got.m[i] > 1 && got.v[i] > low_v;
    }
    const auto near = [&](double count, double p) {
      EXPECT_NEAR(count / n, p, 4 * std::sqrt(p * (1 - p) / n)) << share;
    };
    near(up_m, share);
    near(up_v, above);
    near(both, share * above);
  }
  const Values gradient = round_to(normal_values(n, 9), DType::f32);
  const State one = moments(gradient, 1), other = moments(gradient, 2);
  double error = 0, differ = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double exact = 0.5 * gradient[i];
    const double step =
        from_bits((bits_of(exact) & 0xffff0000u) + 0x10000u) - from_bits(bits_of(exact) & 0xffff0000u);
    error += (one.m[i] - exact) / std::abs(step);
    differ += one.m[i] != other.m[i];
  }
  EXPECT_NEAR(error / n, 0.0, 4 * std::sqrt(1.0 / 6 / n));
  EXPECT_NEAR(differ / n, 1.0 / 3, 0.01);  // 2 p (1 - p) of another update's words
}

TEST(Adamw, RefusesOtherFormats) {
  TestCtx ctx;
  const State s = start_of(Values(8, 1.0));
  const Values gradient(8, 1.0);
  AdamwStep step;
  EXPECT_THROW(update(ctx, DType::f32, s, gradient, step, nullptr, {.remainder = true}), Error);
  EXPECT_THROW(update(ctx, DType::f64, s, gradient, step, nullptr, {.bf16_moments = true}), Error);
  step.first_element = 2;
  EXPECT_THROW(update(ctx, DType::f32, s, gradient, step, nullptr, {.bf16_moments = true}), Error);
}

/// What is in the slot after x came to `before`.
double squares(Ctx& c, DType dtype, const Values& x, double before = 0.0) {
  TestTensor tensor(c, x, dtype, {static_cast<int64_t>(x.size())}), sum(c, Values{before}, DType::f64, {1});
  sum_of_squares(c, sum, tensor);
  return sum.values()[0];
}

TEST(SumOfSquares, ValueTypesThreads) {
  const Values x = round_to(normal_values(100003, 4), DType::bf16);
  long double exact = 0;
  for (double value : x) exact += static_cast<long double>(value) * value;
  double first = 0;
  for (DType dtype : kStorageTypes)
    for (int threads : {1, 2, 3}) {
      TestCtx ctx(threads);
      const double got = squares(ctx, dtype, x);
      EXPECT_NEAR(got, static_cast<double>(exact), 1e-10);
      if (first == 0) first = got;
      EXPECT_EQ(got, first) << dtype_name(dtype) << ", " << threads << " threads";
      EXPECT_EQ(squares(ctx, dtype, x, 0.1), 0.1 + first);
    }
  TestCtx ctx;
  EXPECT_EQ(squares(ctx, DType::f32, {}), 0.0);
  EXPECT_EQ(squares(ctx, DType::f32, {}, 7.5), 7.5);
}

TEST(SumOfSquares, BeyondFp32) {
  TestCtx ctx;
  EXPECT_NEAR(squares(ctx, DType::f32, {3e30, 4e30}), 25e60, 1e55);
  EXPECT_TRUE(std::isnan(squares(ctx, DType::f32, {1.0, std::nan("")})));
  for (DType dtype : {DType::f32, DType::bf16})
    for (size_t at : {size_t{0}, size_t{8191}, size_t{70000}}) {
      Values x = normal_values(70001, 5);
      x[at] = std::nan("");
      EXPECT_TRUE(std::isnan(squares(ctx, dtype, x))) << at;
      x[at] = -std::numeric_limits<double>::infinity();
      EXPECT_EQ(squares(ctx, dtype, x), std::numeric_limits<double>::infinity()) << at;
    }
}

/// Elements of a piece that begins anywhere, and every size around the eights in which they are read.
TEST(SumOfSquares, AnyPiece) {
  TestCtx ctx;
  const Values all = round_to(normal_values(5000, 6), DType::bf16);
  for (DType dtype : {DType::f32, DType::bf16}) {
    TestTensor x(ctx, all, dtype, {5000});
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {1, 8}, {3, 12}, {8, 16}, {7, 4104}, {0, 5000}}) {
      TestTensor sum(ctx, Values{0.0}, DType::f64, {1});
      sum_of_squares(ctx, sum, rows(static_cast<CTensor>(x), begin, end));
      EXPECT_EQ(sum.values()[0], squares(ctx, dtype, slice_rows(all, 1, begin, end))) << begin << " " << end;
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
