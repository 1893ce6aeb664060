#pragma once
// Models over tensor parallel ranks: log-probs with the bits of one rank, gradients of one rank within
// rounding. The same tests run on 2 and 4 ranks, and on a GPU that the ranks share
// (tensor_parallel_mpi*_test.cpp).

#include <cstring>

#include "src/nn/init.h"
#include "src/nn/parallel/tensor_parallel.h"
#include "tests/support/check_op.h"
#include "tests/support/model_pass.h"
#include "tests/support/ranks.h"
#include "tests/support/sample_rows.h"
#include "tests/support/tiny_model.h"

namespace temper {

/// The device that the test program says.
Device device_of_split_models();

struct SplitShape {
  const char* name;
  int64_t vocabulary, heads, kv_heads;
  bool tied, qk_norm, biases;
  int64_t head_dim = 16, hidden = 32;
};
/// KV heads that divide by the ranks, and fewer than ranks; vocabularies of several chunks, and of less than
/// one; for a GPU also shapes that its fast kernels take.
inline constexpr SplitShape kSplitShapes[] = {
    {"norms of heads, own heads", 2 * kVocabularyChunk + 100, 8, 4, false, true, false},
    {"one head of keys for all, tied", 2 * kVocabularyChunk + 100, 8, 1, true, true, false},
    {"two heads of keys, biases", 150, 4, 2, false, false, true},
    {"tied, one chunk", 150, 4, 4, true, false, true},
    {"heads of 64", 3000, 8, 2, true, false, true, 64, 512},
    {"heads of 128", 5 * kVocabularyChunk + 1, 8, 4, false, true, false, 128, 256},
};

class TensorParallel : public OnRanks {
 protected:
  static std::span<const SplitShape> shapes() {
    const std::span<const SplitShape> all(kSplitShapes);
    return device_of_split_models() == Device::cpu ? all.first(4) : all;
  }
  static ModelConfig config_of(const SplitShape& s) {
    ModelConfig c = tiny_config(s.vocabulary);
    c.num_heads = s.heads;
    c.head_dim = s.head_dim;
    c.hidden_size = s.hidden;
    c.intermediate_size = 3 * s.hidden / 2;
    c.initializer_range = s.hidden > 32 ? 0.05 : 0.3;
    c.num_kv_heads = s.kv_heads;
    c.tie_word_embeddings = s.tied;
    c.qk_norm = s.qk_norm;
    c.qkv_bias = c.o_bias = c.mlp_bias = s.biases;
    return c;
  }
  std::unique_ptr<Model> make(const SplitShape& s, DType dtype, bool split) {
    const ModelConfig config = config_of(s);
    ModelOptions options{dtype, 256, /*with_gradients=*/true, device_of_split_models()};
    if (split) options.splits = {tp_.get()};
    auto model = std::make_unique<Model>(config, options);
    random_init(model->parameters(), config, 5);
    return model;
  }
  static std::vector<Trajectory> sequences(int64_t vocabulary) {
    std::vector<Trajectory> all;
    for (const auto& [prompt, response] : {std::pair{3, 9}, {1, 20}, {17, 1}, {100, 70}}) {
      Trajectory& t = all.emplace_back();
      t.prompt_tokens = random_ids(prompt, static_cast<int32_t>(vocabulary), static_cast<uint64_t>(prompt));
      t.response.tokens =
          random_ids(response, static_cast<int32_t>(vocabulary), static_cast<uint64_t>(response + 50));
    }
    return all;
  }
  Values values(const Tensor& t) { return decode(bytes_of(backend_.ctx(), t), t.dtype); }
  /// Gradients of the whole model are compared row by row with what this rank has of them.
  void expect_gradients(const std::string& name, const Model& got, const Model& want, double tolerance) {
    ASSERT_EQ(got.parameters().list().size(), want.parameters().list().size());
    for (size_t i = 0; i < got.parameters().list().size(); ++i) {
      const Parameter &own = got.parameters().list()[i], &whole = want.parameters().list()[i];
      const int64_t width = whole.spec.size() / whole.spec.shape[0];
      const Values all = values(whole.grad);
      Values rows;
      for (const RowSpan& span : own.spans)
        rows.insert(rows.end(), all.begin() + span.whole * width,
                    all.begin() + (span.whole + span.rows) * width);
      expect_near(name + ": " + own.spec.name, values(own.grad), rows, tolerance);
    }
  }
  std::vector<double> gradients(Model& model, const SplitShape& s, bool split) {
    const std::vector<Trajectory> all = sequences(s.vocabulary);
    const std::vector<double> logprobs = target_gradients(backend_.ctx(), model, all, normal_values(100, 77));
    ParameterStore& store = model.parameters();
    for (const Unit& unit : store.units()) {
      store.settle_grads(backend_.ctx().lane, unit);
      if (split) settle_gradients(backend_.ctx(), *tp_, store, unit);
    }
    return logprobs;
  }

  const bool cpu_ = device_of_split_models() == Device::cpu;
  Backend backend_{device_of_split_models()};
  std::unique_ptr<Collectives> tp_ =
      test_world->make_collectives(0, test_world->rank(), device_of_split_models(), "tp", kTestWaitLimit);
};

TEST_F(TensorParallel, LogProbsHaveTheBitsOfOneRank) {
  for (const SplitShape& s : shapes())
    for (const DType dtype : kStorageTypes) {
      if (dtype == DType::f64 && !cpu_) continue;
      ArenaScope scope(backend_.ctx().scratch);
      const auto whole = make(s, dtype, false), split = make(s, dtype, true);
      const std::vector<Trajectory> all = sequences(s.vocabulary);
      expect_same_bits(fmt::format("{}, {}", s.name, dtype_name(dtype)),
                       target_logprobs(backend_.ctx(), *split, all),
                       target_logprobs(backend_.ctx(), *whole, all));
    }
}

TEST_F(TensorParallel, GradientsAreThoseOfOneRankWithinRounding) {
  for (const SplitShape& s : shapes()) {
    ArenaScope scope(backend_.ctx().scratch);
    const DType dtype = cpu_ ? DType::f64 : DType::f32;
    const auto whole = make(s, dtype, false), split = make(s, dtype, true);
    gradients(*whole, s, false);
    gradients(*split, s, true);
    expect_gradients(s.name, *split, *whole, cpu_ ? 1e-10 : 1e-4);
  }
}

/// More rows than are sampled at once: of all kinds, then without filters, then with edits.
TEST_F(TensorParallel, TokensAreDrawnAsOneRankDrawsThem) {
  Ctx& c = backend_.ctx();
  for (const SplitShape& s : shapes())
    for (const DType dtype : kStorageTypes) {
      if (dtype == DType::f64 && !cpu_) continue;
      ArenaScope scope(c.scratch);
      const auto whole = make(s, dtype, false), split = make(s, dtype, true);
      const int64_t n = 70;
      TestTensor hidden(c, normal_values(n * s.hidden, 3), dtype, {n, s.hidden});
      const EditedRows edited(n, s.vocabulary);
      std::vector<SampleRow> plain = mixed_rows(n);
      for (SampleRow& row : plain) row.options = {.temperature = row.options.temperature};
      for (const std::vector<SampleRow>& list : {mixed_rows(n), plain, edited.rows}) {
        const SampleRows rows = place_rows(c, list);
        const auto draw = [&](const Model& model) {
          const Sampled drawn = model.head().sample(c, hidden, rows, s.vocabulary - 10);
          return std::pair{values(drawn.tokens), values(drawn.logprob)};
        };
        const auto got = draw(*split), want = draw(*whole);
        EXPECT_EQ(got.first, want.first) << s.name << ", " << dtype_name(dtype);
        expect_same_bits(fmt::format("{}, {}", s.name, dtype_name(dtype)), got.second, want.second);
      }
    }
}

/// On a GPU it is the engine that ends the step.
TEST_F(TensorParallel, EveryRankKnowsThatNothingIsLeftToDraw) {
  Ctx& c = backend_.ctx();
  const SplitShape& s = shapes().front();
  const auto split = make(s, DType::f32, true);
  std::vector<LogitEdit> all;
  for (int32_t id = 0; id < s.vocabulary; ++id) all.push_back({id, 0, false, kNever});
  for (const SampleOptions& options : {SampleOptions{}, {.top_p = 0.9}}) {
    ArenaScope scope(c.scratch);
    TestTensor hidden(c, normal_values(s.hidden, 3), DType::f32, {1, s.hidden});
    const std::vector<SampleRow> list{{{1, 2, 3}, 4, options, all}};
    const auto draw = [&] { return split->head().sample(c, hidden, place_rows(c, list), s.vocabulary); };
    if (cpu_)
      EXPECT_THROW(draw(), Error);
    else
      EXPECT_EQ(values(draw().tokens), Values{-1});
  }
}

/// What several ranks have of a parameter would drift apart otherwise.
TEST_F(TensorParallel, GradientsThatRanksShareHaveTheSameBits) {
  for (const SplitShape& s : shapes()) {
    ArenaScope scope(backend_.ctx().scratch);
    const auto split = make(s, DType::bf16, true);
    gradients(*split, s, true);
    for (const Parameter& p : split->parameters().list()) {
      const int64_t width = p.spec.size() / p.spec.shape[0] * dtype_size(p.grad.dtype);
      const std::vector<char> grad = bytes_of(backend_.ctx(), p.grad);
      for (const RowSpan& span : p.spans) {
        const std::string mine(grad.data() + span.own * width, static_cast<size_t>(span.rows * width));
        const std::vector<std::string> all = comm_->all_gather(mine, "test: gradients of all ranks");
        EXPECT_TRUE(span.num_ranks == 1 || mine == all[static_cast<size_t>(span.first_rank)])
            << s.name << ": " << p.spec.name;
      }
    }
  }
}

/// Random weights are those of the whole model, whatever ranks there are.
TEST_F(TensorParallel, RanksTogetherHaveEveryRowOfTheModelOnce) {
  for (const SplitShape& s : shapes()) {
    const auto whole = make(s, DType::f32, false), split = make(s, DType::f32, true);
    for (size_t i = 0; i < whole->parameters().list().size(); ++i) {
      const Parameter &all = whole->parameters().list()[i], &own = split->parameters().list()[i];
      const int64_t width = all.spec.size() / all.spec.shape[0];
      double first_copies = 0;
      const Values have = values(own.value), want = values(all.value);
      for (const RowSpan& span : own.spans) {
        expect_same_bits(own.spec.name, slice_rows(have, width, span.own, span.own + span.rows),
                         slice_rows(want, width, span.whole, span.whole + span.rows));
        if (span.first_rank == comm_->rank()) first_copies += static_cast<double>(span.rows);
      }
      std::vector<double> rows{first_copies};
      comm_->all_reduce_sum(rows, "test: rows of all ranks");
      EXPECT_EQ(rows[0], static_cast<double>(all.spec.shape[0])) << own.spec.name;
    }
  }
}

}  // namespace temper
