#include "src/ops/sample.h"

#include <limits>

#include "kernels/cpu/sample.h"
#include "src/ops/head.h"
#include "src/ops/linear.h"
#include "tests/support/check_op.h"
#include "tests/support/sample_rows.h"

namespace temper {
namespace {

struct Sizes {
  int64_t n, V, D;
};

struct Drawn {
  std::vector<int32_t> tokens;
  Values logprob;
};

Drawn draw(Ctx& c, DType dtype, const Many& in, const std::vector<SampleRow>& rows, const Sizes& s,
           int64_t num_sampleable) {
  TestTensor hidden(c, in[0], dtype, {s.n, s.D}), w(c, in[1], dtype, {s.V, s.D});
  TestTensor tokens(c, DType::i32, {s.n}), logprob(c, accumulate_dtype(dtype), {s.n});
  sample(c, tokens, logprob, hidden, w, place_rows(c, rows), num_sampleable);
  Drawn out{{}, logprob.values()};
  for (const double t : tokens.values()) out.tokens.push_back(static_cast<int32_t>(t));
  return out;
}

/// The same logits at `count` positions of one response.
std::vector<int32_t> draw_positions(DType dtype, const Values& logits, const SampleKey& key, int64_t count,
                                    const SampleOptions& options) {
  TestCtx ctx;
  std::vector<SampleRow> rows;
  for (int64_t r = 0; r < count; ++r) rows.push_back({key, static_cast<uint32_t>(r), options});
  const Sizes s{count, static_cast<int64_t>(logits.size()), 1};
  return draw(ctx, dtype, {Values(static_cast<size_t>(count), 1.0), logits}, rows, s, s.V).tokens;
}

const Values kGoldenLogits{1, 0, -1, 2, 0.5};

CPU_TEST(Sample, GoldenDraws) {
  for (DType dtype : kStorageTypes) {
    EXPECT_EQ(draw_positions(dtype, kGoldenLogits, {42, 0, 1}, 24, {}),
              (std::vector<int32_t>{3, 3, 0, 3, 3, 3, 3, 3, 3, 0, 1, 3, 0, 1, 3, 3, 2, 3, 3, 3, 1, 4, 0, 0}));
    EXPECT_EQ(draw_positions(dtype, kGoldenLogits, {42, 0, 2}, 24, {}),
              (std::vector<int32_t>{3, 3, 3, 1, 0, 1, 3, 4, 3, 4, 3, 1, 3, 3, 3, 3, 4, 0, 0, 3, 1, 0, 3, 0}));
  }
}

CPU_TEST(Sample, GoldenCounts) {
  std::vector<int64_t> counts(5);
  for (const int32_t id : draw_positions(DType::f32, kGoldenLogits, {42, 0, 1}, 40000, {})) ++counts[id];
  EXPECT_EQ(counts, (std::vector<int64_t>{8464, 3067, 1065, 22524, 4880}));
}

/// Ids 0 and 4 kept by top_k: the noise of an id does not depend on what the filters drop.
CPU_TEST(Sample, GoldenDrawsOfKeptIds) {
  EXPECT_EQ(draw_positions(DType::f32, {1, -20, -20, -20, 0.5}, {42, 0, 1}, 16, {.top_k = 2}),
            (std::vector<int32_t>{4, 4, 0, 0, 0, 4, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}));
}

CPU_TEST(Sample, NoiseWithoutBranchesHasTheSameBits) {
  for (uint64_t x = 0; x < uint64_t{1} << 32; x += 509) {
    const uint32_t word = static_cast<uint32_t>(x);
    ASSERT_EQ(std::bit_cast<uint32_t>(cpu::log_exponential_of(word)),
              std::bit_cast<uint32_t>(plog(exponential_of(word))))
        << word;
  }
  for (const uint32_t word : {0x7fffffffu, 0x80000000u, 0x4afb0ccbu, 0xb504f333u, 0xffffffffu})
    EXPECT_EQ(cpu::log_exponential_of(word), plog(exponential_of(word)));
}

CPU_TEST(Sample, NoiseGroup) {
  const SampleKey key{99, 12345678, 77};
  float noise[cpu::kNoiseGroup];
  cpu::noise_group(noise, key, 3, 128);
  for (uint32_t i = 0; i < cpu::kNoiseGroup; ++i)
    EXPECT_EQ(noise[i], plog(exponential_of(key.words((128 + i) / 4, 3)[i % 4]))) << i;
}

/// Kept ids in order and their log-prob over the kept set.
std::pair<std::vector<int32_t>, Values> kept_by(const Values& t, const SampleOptions& options) {
  std::vector<cpu::Candidate<double>> list;
  for (size_t v = 0; v < t.size(); ++v) list.push_back({t[v], static_cast<int32_t>(v), 0.0});
  list.resize(static_cast<size_t>(cpu::filter(list.data(), static_cast<int64_t>(list.size()), options)));
  std::sort(list.begin(), list.end(), cpu::comes_before<double>);
  std::pair<std::vector<int32_t>, Values> kept;
  double total = 0;
  for (const auto& c : list) total += std::exp(c.t);
  for (const auto& c : list) {
    kept.first.push_back(c.id);
    kept.second.push_back(c.t - std::log(total));
  }
  return kept;
}

CPU_TEST(Filter, GoldenSets) {
  const double T = 0.8;
  const Values t{2 / T, 1 / T, 0.5 / T, 0.5 / T, -1 / T};
  const auto expect = [&](const SampleOptions& o, const std::vector<int32_t>& ids, const Values& logprob) {
    const auto kept = kept_by(t, o);
    EXPECT_EQ(kept.first, ids);
    expect_near("log-prob over the kept ids", kept.second, logprob, 0, 1e-10);
  };
  expect({}, {0, 1, 2, 3, 4}, {-0.4804071225, -1.7304071225, -2.3554071225, -2.3554071225, -4.2304071225});
  const Values four{-0.4657538182, -1.7157538182, -2.3407538182, -2.3407538182};
  expect({.min_p = 0.05}, {0, 1, 2, 3}, four);
  expect({.top_p = 0.9}, {0, 1, 2, 3}, four);
  expect({.top_k = 3}, {0, 1, 2}, {-0.3645457225, -1.6145457225, -2.2395457225});
  expect({.top_k = 3, .top_p = 0.8, .min_p = 0.05}, {0, 1}, {-0.2519290813, -1.5019290813});
}

CPU_TEST(Filter, EdgesOfTheRules) {
  const Values t{0, 0, 0, -1};
  EXPECT_EQ(kept_by(t, {.top_p = 1e-9}).first, (std::vector<int32_t>{0}));
  EXPECT_EQ(kept_by(t, {.top_k = 100}).first, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept_by(t, {.top_k = -1}).first, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept_by(t, {.top_k = 2}).first, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(kept_by(t, {.min_p = 1.0}).first, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(kept_by(t, {.min_p = std::exp(-1.0)}).first, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept_by(t, {.min_p = std::exp(-1.0) + 1e-15}).first, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(kept_by({0, 0}, {.top_p = 0.5}).first, (std::vector<int32_t>{0}));
  EXPECT_EQ(kept_by({0, 0}, {.top_p = 0.5 + 1e-15}).first, (std::vector<int32_t>{0, 1}));
}

Many inputs_of(const Sizes& s, uint64_t seed) {
  return {normal_values(s.n * s.D, seed), normal_values(s.V * s.D, seed + 1, 0.4)};
}

/// The rules in their plainest form: sort, cut, and compare the scores of what is kept.
int32_t plain_draw(const std::vector<double>& t, const SampleRow& row) {
  struct Entry {
    double t;
    int32_t id;
  };
  std::vector<Entry> order;
  for (size_t v = 0; v < t.size(); ++v) order.push_back({t[v], static_cast<int32_t>(v)});
  std::stable_sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) { return a.t > b.t; });
  const SampleOptions& o = row.options;
  if (o.temperature == 0) return order[0].id;
  const double most = order[0].t;
  std::erase_if(order, [&](const Entry& e) { return o.min_p > 0 && std::exp(e.t - most) < o.min_p; });
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < order.size()) order.resize(static_cast<size_t>(o.top_k));
  if (o.top_p < 1) {
    double total = 0, before = 0;
    for (const Entry& e : order) total += std::exp(e.t - most);
    size_t kept = 0;
    while (kept < order.size() && (kept == 0 || before < o.top_p))
      before += std::exp(order[kept++].t - most) / total;
    order.resize(kept);
  }
  std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  float best = -std::numeric_limits<float>::infinity();
  int32_t id = -1;
  for (const Entry& e : order) {
    const uint32_t v = static_cast<uint32_t>(e.id);
    const float score =
        static_cast<float>(e.t) - plog(exponential_of(row.key.words(v / 4, row.position)[v % 4]));
    if (score > best) best = score, id = e.id;
  }
  return id;
}

CPU_TEST(Sample, FollowsTheRulesInEveryType) {
  const Sizes s{80, 5000, 24};
  const int64_t num_sampleable = 4990;
  const std::vector<SampleRow> rows = mixed_rows(s.n);
  for (DType dtype : kStorageTypes) {
    Many in = inputs_of(s, 10);
    for (Values& values : in) values = round_to(values, dtype);
    TestCtx ctx;
    TestTensor hidden(ctx, in[0], dtype, {s.n, s.D}), w(ctx, in[1], dtype, {s.V, s.D});
    TestTensor logits(ctx, accumulate_dtype(dtype), {s.n, s.V});
    linear_forward(ctx, logits, hidden, w, {});
    const Values z = logits.values();
    const Drawn got = draw(ctx, dtype, in, rows, s, num_sampleable);
    for (int64_t r = 0; r < s.n; ++r) {
      const double T = rows[r].options.temperature == 0 ? 1.0 : rows[r].options.temperature;
      Values t(z.begin() + r * s.V, z.begin() + r * s.V + num_sampleable);
      for (double& x : t)
        x = dtype == DType::f64 ? x * (1.0 / T)
                                : static_cast<double>(static_cast<float>(x) * (1.0f / static_cast<float>(T)));
      EXPECT_EQ(got.tokens[r], plain_draw(t, rows[r])) << dtype_name(dtype) << " row " << r;
    }
  }
}

TEST(Sample, LogprobHasTheBitsOfScoring) {
  const Sizes s{70, 6200, 64};
  const std::vector<SampleRow> rows = mixed_rows(s.n);
  for (DType dtype : kStorageTypes) {
    const Many in = inputs_of(s, 20);
    TestCtx ctx;
    const Drawn got = draw(ctx, dtype, in, rows, s, 6000);
    for (int64_t r = 0; r < s.n; ++r) {
      const DType sums = accumulate_dtype(dtype);
      TestTensor hidden(ctx, slice_rows(in[0], s.D, r, r + 1), dtype, {1, s.D}),
          w(ctx, in[1], dtype, {s.V, s.D});
      TestTensor target(ctx, std::vector<int32_t>{got.tokens[r]}, {1}), logprob(ctx, sums, {1}),
          entropy(ctx, sums, {1}), lse(ctx, sums, {1});
      logprob_forward(ctx, logprob, entropy, lse, hidden, w, target, rows[r].options.temperature);
      expect_same_bits(fmt::format("{} row {}", dtype_name(dtype), r), {got.logprob[r]}, logprob.values());
    }
  }
}

TEST(Sample, NothingOfTheBatchEnters) {
  const Sizes s{130, 4200, 32};
  const std::vector<SampleRow> rows = mixed_rows(s.n);
  const Many in = inputs_of(s, 30);
  const auto part = [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    const Drawn got = draw(c, t, {slice_rows(in[0], s.D, begin, end), in[1]},
                           {rows.begin() + begin, rows.begin() + end}, {end - begin, s.V, s.D}, 4100);
    return Many{Values(got.tokens.begin(), got.tokens.end()), got.logprob};
  };
  check_rows("sample", s.n, part);
  if (kTestDevice == Device::cpu)
    check_threads("sample", in, [&](Ctx& c, DType t, const Many&) { return part(c, t, 0, s.n); });
}

/// The formulas as they are written down, over the whole row.
template <class A>
Values plain_edits(const double* z, int64_t count, const SampleRow& row) {
  const SampleOptions& o = row.options;
  std::vector<A> x(z, z + count);
  const auto at = [&](const LogitEdit& e) -> A& { return x[static_cast<size_t>(e.id)]; };
  std::vector<LogitEdit> edits;
  for (const LogitEdit& e : row.edits)
    if (e.id < count) edits.push_back(e);
  for (const LogitEdit& e : edits) at(e) += static_cast<A>(e.bias);
  for (const LogitEdit& e : edits)
    if (e.seen)
      at(e) = at(e) > 0 ? at(e) / static_cast<A>(o.repetition_penalty)
                        : at(e) * static_cast<A>(o.repetition_penalty);
  for (const LogitEdit& e : edits) at(e) -= static_cast<A>(o.frequency_penalty) * static_cast<A>(e.count);
  for (const LogitEdit& e : edits)
    if (e.count > 0) at(e) -= static_cast<A>(o.presence_penalty);
  const A scale = o.temperature == 0 ? A(1) : A(1) / static_cast<A>(o.temperature);
  for (A& v : x) v *= scale;
  return {x.begin(), x.end()};
}

CPU_TEST(Edits, GoldenLogits) {
  const Values z{2, -1, 0.5, 0.5, -1};
  const auto edited = [&](const std::vector<LogitEdit>& edits, const SampleOptions& o) {
    Values x = z;
    for (const LogitEdit& e : edits)
      x[static_cast<size_t>(e.id)] = cpu::edited_logit(z[static_cast<size_t>(e.id)], e, o);
    return x;
  };
  // Prompt (0, 1), response (2, 2, 4).
  std::vector<LogitEdit> edits{{0, 0, true}, {1, 0, true}, {2, 2, true}, {4, 1, true}};
  expect_near("all penalties",
              edited(edits, {.repetition_penalty = 1.25, .frequency_penalty = 0.3, .presence_penalty = 0.2}),
              {1.6, -1.25, -0.4, 0.5, -1.75}, 0, 1e-12);
  EXPECT_EQ(edited(edits, {}), z) << "all off: the same bits";
  // transformers 5: SequenceBias {0: -3, 3: 1.25}, then RepetitionPenalty 1.25, then MinNewTokens with end
  // id 3.
  edits[0].bias = -3.0;
  edits.insert(edits.begin() + 3, {3, 0, false, 1.25});
  const SampleOptions repetition{.repetition_penalty = 1.25};
  EXPECT_EQ(edited(edits, repetition), (Values{-1.25, -1.25, 0.4, 1.75, -1.25}));
  edits[3].bias = kNever;
  EXPECT_EQ(edited(edits, repetition), (Values{-1.25, -1.25, 0.4, kNever, -1.25}));
}

CPU_TEST(Edits, DrawsFollowThemAndLogprobsDoNot) {
  const Sizes s{80, 5000, 24};
  const int64_t num_sampleable = 4990;
  const EditedRows edited(s.n, s.V);
  for (DType dtype : kStorageTypes) {
    Many in = inputs_of(s, 50);
    for (Values& values : in) values = round_to(values, dtype);
    TestCtx ctx(2);
    TestTensor hidden(ctx, in[0], dtype, {s.n, s.D}), w(ctx, in[1], dtype, {s.V, s.D});
    TestTensor logits(ctx, accumulate_dtype(dtype), {s.n, s.V});
    linear_forward(ctx, logits, hidden, w, {});
    const Values z = logits.values();
    const Drawn got = draw(ctx, dtype, in, edited.rows, s, num_sampleable);
    const Drawn plain = draw(ctx, dtype, in, mixed_rows(s.n), s, num_sampleable);
    int64_t changed = 0, of_edited_ids = 0;
    for (int64_t r = 0; r < s.n; ++r) {
      const SampleRow& row = edited.rows[r];
      const double* of_row = z.data() + r * s.V;
      const Values t = dtype == DType::f64 ? plain_edits<double>(of_row, num_sampleable, row)
                                           : plain_edits<float>(of_row, num_sampleable, row);
      EXPECT_EQ(got.tokens[r], plain_draw(t, row)) << dtype_name(dtype) << " row " << r;
      changed += got.tokens[r] != plain.tokens[r];
      for (const LogitEdit& e : row.edits)
        if (e.id == got.tokens[r]) {
          ++of_edited_ids;
          EXPECT_NE(e.bias, kNever) << r;
        }
      const DType sums = accumulate_dtype(dtype);
      TestTensor one(ctx, slice_rows(in[0], s.D, r, r + 1), dtype, {1, s.D});
      TestTensor target(ctx, std::vector<int32_t>{got.tokens[r]}, {1}), logprob(ctx, sums, {1}),
          entropy(ctx, sums, {1}), lse(ctx, sums, {1});
      logprob_forward(ctx, logprob, entropy, lse, one, w, target, row.options.temperature);
      expect_same_bits(fmt::format("{} row {}", dtype_name(dtype), r), {got.logprob[r]}, logprob.values());
    }
    EXPECT_GT(changed, 20);
    EXPECT_GT(of_edited_ids, 5);
  }
}

TEST(Edits, NothingOfTheBatchEnters) {
  const Sizes s{70, 4200, 32};
  const EditedRows edited(s.n, s.V);
  const Many in = inputs_of(s, 60);
  const auto part = [&](Ctx& c, DType t, int64_t begin, int64_t end) {
    const Drawn got =
        draw(c, t, {slice_rows(in[0], s.D, begin, end), in[1]},
             {edited.rows.begin() + begin, edited.rows.begin() + end}, {end - begin, s.V, s.D}, 4100);
    return Many{Values(got.tokens.begin(), got.tokens.end()), got.logprob};
  };
  check_rows("edited sample", s.n, part);
  if (kTestDevice == Device::cpu)
    check_threads("edited sample", in, [&](Ctx& c, DType t, const Many&) { return part(c, t, 0, s.n); });
}

CPU_TEST(Edits, TheLastIdLeftIsDrawnAndNoneIsAnError) {
  std::vector<LogitEdit> edits;
  for (int32_t id = 0; id < 4200; ++id)
    if (id != 3000) edits.push_back({id, 0, false, kNever});
  for (const SampleOptions& o :
       {SampleOptions{}, {.temperature = 0}, {.top_k = 7}, {.top_p = 0.5}, {.min_p = 0.1}}) {
    TestCtx ctx;
    const Many in{{1.0}, normal_values(4200, 70)};
    EXPECT_EQ(draw(ctx, DType::f32, in, {{{1, 2, 3}, 4, o, edits}}, {1, 4200, 1}, 4200).tokens[0], 3000);
    try {
      draw(ctx, DType::f32, in, {{{1, 31, 2}, 9, o, edits}}, {1, 4200, 1}, 2500);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::numerics);
      EXPECT_NE(e.problem().where.find("position 31"), std::string::npos) << e.what();
    }
  }
}

TEST(Edits, MustBeInTheOrderOfTheirIds) {
  TestCtx ctx;
  for (const std::vector<LogitEdit>& edits :
       {std::vector<LogitEdit>{{.id = 3}, {.id = 1}}, {{.id = 2}, {.id = 2}}})
    EXPECT_THROW(
        draw(ctx, DType::f32, {{1.0}, normal_values(5, 80)}, {{{1, 2, 3}, 4, {}, edits}}, {1, 5, 1}, 5),
        Error);
}

/// First ids of 1 to 5 shares of a vocabulary in whole chunks, and its end. Some have nothing of it.
std::vector<int64_t> random_cuts(std::mt19937& random, int64_t V) {
  std::vector<int64_t> cuts(1 + random() % 5);
  for (int64_t& first : cuts) first = static_cast<int64_t>(random()) % num_chunks(V) * kVocabularyChunk;
  cuts.front() = 0;
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(V);
  return cuts;
}

/// The steps of ranks that have [cuts[i], cuts[i + 1]), one after the other.
Drawn draw_shares(Ctx& c, DType dtype, const Many& in, const SampleRows& rows, int64_t kept, const Sizes& s,
                  int64_t num_sampleable, const std::vector<int64_t>& cuts) {
  const DType sums = accumulate_dtype(dtype);
  TestTensor hidden(c, in[0], dtype, {s.n, s.D}), tokens(c, DType::i32, {s.n}), logprob(c, sums, {s.n});
  const SampleChunks all = make_sample_chunks(c, rows.list, kept, sums, s.V);
  for (const Tensor& t : {all.best, all.kept, all.unedited})
    if (!t.empty()) device::fill(c.lane, t.raw(), 0xff, t.bytes());
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    TestTensor w(c, slice_rows(in[1], s.D, cuts[i], cuts[i + 1]), dtype, {cuts[i + 1] - cuts[i], s.D});
    sample_chunks(c, all.part(num_chunks(cuts[i]), num_chunks(cuts[i + 1])), hidden, w, rows, num_sampleable,
                  {cuts[i], s.V});
  }
  sample_merge(c, tokens, logprob, all, rows, num_sampleable);
  Drawn out{{}, logprob.values()};
  for (const double t : tokens.values()) out.tokens.push_back(static_cast<int32_t>(t));
  return out;
}

/// Rows of all kinds with a slot for those with filters, and, as in a recorded graph, with one for each row.
TEST(SampleShares, DrawWhatTheWholeVocabularyDraws) {
  std::mt19937 random(91);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random()) % n; };
  for (int round = 0; round < 10; ++round) {
    const Sizes s{1 + below(80), 100 + below(round < 3 ? 3000 : 9000), 1 + below(24)};
    const int64_t num_sampleable = s.V - below(s.V / 2);
    const std::vector<int64_t> cuts = random_cuts(random, s.V);
    const EditedRows edited(s.n, s.V);
    std::vector<SampleRow> list = round % 3 == 0 ? mixed_rows(s.n) : edited.rows;
    if (round % 5 == 1) std::erase_if(list, [](const SampleRow& r) { return r.options.filters(); });
    const Sizes of{std::ssize(list), s.V, s.D};
    const Many in = inputs_of(of, static_cast<uint64_t>(100 + round));
    for (const DType dtype : kStorageTypes) {
      TestCtx ctx(2);
      const Drawn want = draw(ctx, dtype, in, list, of, num_sampleable);
      SampleRows rows = place_rows(ctx, list);
      int64_t kept = std::count_if(list.begin(), list.end(), [](auto& r) { return r.options.filters(); });
      if (round % 2 == 1 && kept > 0) rows.filtered_before = nullptr, kept = of.n;
      const Drawn got = draw_shares(ctx, dtype, in, rows, kept, of, num_sampleable, cuts);
      EXPECT_EQ(got.tokens, want.tokens) << dtype_name(dtype) << ", round " << round;
      expect_same_bits(fmt::format("{}, round {}", dtype_name(dtype), round), got.logprob, want.logprob);
    }
  }
}

/// The message of the error that ends `work`.
template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

CPU_TEST(SampleShares, ErrorsAreThoseOfTheWholeVocabulary) {
  const Sizes s{70, 2 * kVocabularyChunk + 50, 1};
  std::vector<LogitEdit> none;
  for (int32_t id = 0; id < s.V; ++id) none.push_back({id, 0, false, kNever});
  for (const bool finite : {true, false}) {
    Many in{Values(70, 1.0), normal_values(s.V, 70)};
    std::vector<SampleRow> list = mixed_rows(s.n);
    if (finite) list[68].edits = none;
    if (!finite) in[0][68] = 1e38, in[1][5] = 100;
    TestCtx ctx;
    const std::string whole = error_of([&] { draw(ctx, DType::f32, in, list, s, s.V); });
    EXPECT_NE(whole.find("row 68 of the batch"), std::string::npos) << whole;
    EXPECT_EQ(error_of([&] {
                draw_shares(ctx, DType::f32, in, {list}, s.n, s, s.V, {0, kVocabularyChunk, s.V});
              }),
              whole);
  }
}

CPU_TEST(SampleShares, MemoryIsCountedWithoutTheWork) {
  const Sizes s{100, 3 * kVocabularyChunk, 24};
  const EditedRows edited(s.n, s.V);
  const auto peak = [&](Device device, const std::vector<SampleRow>& list, int64_t first, int64_t end) {
    Backend backend(device, 2);
    Ctx& c = backend.ctx();
    const Tensor hidden = c.scratch.zeros({s.n, s.D}, DType::f32),
                 w = c.scratch.zeros({end - first, s.D}, DType::f32),
                 tokens = c.scratch.make({s.n}, DType::i32), logprob = c.scratch.make({s.n}, DType::f32);
    sample(c, tokens, logprob, hidden, w, place_rows(c, list), s.V, {first, s.V},
           [&](const SampleChunks& all) {  // the others know what this share knows
             for (const Tensor& t : {all.best, all.kept, all.unedited})
               for (int64_t chunk = 0; chunk < num_chunks(s.V) && !t.empty(); ++chunk)
                 device::copy(c.lane, rows(t, chunk, chunk + 1).raw(),
                              rows(t, num_chunks(first), 1 + num_chunks(first)).data,
                              t.bytes() / num_chunks(s.V));
           });
    return c.scratch.peak_bytes();
  };
  for (const std::vector<SampleRow>& list : {mixed_rows(s.n), edited.rows})
    for (const auto& [first, end] : {std::pair{int64_t{0}, s.V}, {kVocabularyChunk, 2 * kVocabularyChunk}}) {
      EXPECT_EQ(peak(Device::meta, list, first, end), peak(Device::cpu, list, first, end));
      EXPECT_GT(peak(Device::meta_cuda, list, first, end), 40 * s.V * int64_t{sizeof(float)});
    }
}

CPU_TEST(Sample, UnsampleableIdsAreNeverDrawn) {
  const Values logits{0, 1, 1, 0.5, 30, 30};
  TestCtx ctx;
  std::vector<SampleRow> rows;
  for (uint32_t r = 0; r < 300; ++r) rows.push_back({{5, 0, 0}, r, {}});
  for (uint32_t r = 0; r < 30; ++r) rows.push_back({{5, 0, 0}, r, {.temperature = 0}});
  for (uint32_t r = 0; r < 30; ++r) rows.push_back({{5, 0, 0}, r, {.min_p = 0.9}});
  const Sizes s{static_cast<int64_t>(rows.size()), 6, 1};
  const Drawn got = draw(ctx, DType::f32, {Values(rows.size(), 1.0), logits}, rows, s, 4);
  std::vector<int> seen(6);
  for (size_t r = 0; r < rows.size(); ++r) {
    ++seen[static_cast<size_t>(got.tokens[r])];
    EXPECT_NEAR(got.logprob[r], logits[static_cast<size_t>(got.tokens[r])] - 30 - std::log(2.0), 1e-5);
    const bool greedy = rows[r].options.temperature == 0, most_probable = rows[r].options.min_p > 0;
    EXPECT_TRUE(!greedy || got.tokens[r] == 1) << "tied with 2";
    EXPECT_TRUE(!most_probable || got.tokens[r] == 1 || got.tokens[r] == 2);
  }
  EXPECT_EQ(seen[4] + seen[5], 0);
  EXPECT_GT(std::min({seen[0], seen[1], seen[2], seen[3]}), 0);
}

CPU_TEST(Sample, NonFiniteLogitsNameTheRow) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()})
    for (const int64_t at : {0, 5, 4100})
      for (DType dtype : kStorageTypes) {
        Many in{{1.0, 1.0, 1.0}, Values(4200, 0.5)};
        in[1][static_cast<size_t>(at)] = bad;
        in[0][0] = in[0][2] = 0.0;  // 0 * bad is NaN: rows 0 and 2 are bad too, so row 0 is named first
        TestCtx ctx(2);
        const std::vector<SampleRow> rows{{{1, 31, 2}, 9, {}}, {{1, 32, 2}, 9, {}}, {{1, 33, 2}, 9, {}}};
        try {
          draw(ctx, dtype, in, rows, {3, 4200, 1}, 4200);
          FAIL() << "no error for " << bad;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), Exit::numerics);
          EXPECT_NE(e.problem().where.find("row 0"), std::string::npos) << e.what();
          EXPECT_NE(e.problem().where.find("position 31"), std::string::npos) << e.what();
        }
        in[0] = {1.0};
        EXPECT_THROW(draw(ctx, dtype, in, {rows[0]}, {1, 4200, 1}, 4200), Error) << bad << " at " << at;
      }
}

CPU_TEST(Sample, NoRowsAndWrongCounts) {
  TestCtx ctx;
  const Many in{{}, normal_values(30, 40)};
  EXPECT_TRUE(draw(ctx, DType::f32, in, {}, {0, 10, 3}, 10).tokens.empty());
  EXPECT_THROW(draw(ctx, DType::f32, in, mixed_rows(1), {0, 10, 3}, 10), Error);
  EXPECT_THROW(draw(ctx, DType::f32, in, {}, {0, 10, 3}, 11), Error);
  EXPECT_THROW(draw(ctx, DType::f32, in, {}, {0, 10, 3}, 0), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }
