#pragma once
// Models over tensor parallel ranks: log-probs with the bits of one rank, gradients of one rank within
// rounding. The same tests run on 2 and 4 ranks (tensor_parallel_mpi*_test.cpp).

#include <cstring>

#include "src/nn/init.h"
#include "src/nn/tensor_parallel.h"
#include "tests/support/check_op.h"
#include "tests/support/model_pass.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_model.h"

namespace temper {

struct SplitShape {
  const char* name;
  int64_t vocabulary, heads, kv_heads;
  bool tied, qk_norm, biases;
};
/// KV heads that divide by the ranks, and fewer than ranks; vocabularies of three chunks, and of less than
/// one.
inline constexpr SplitShape kSplitShapes[] = {
    {"norms of heads, own heads", 2 * kVocabularyChunk + 100, 8, 4, false, true, false},
    {"one head of keys for all, tied", 2 * kVocabularyChunk + 100, 8, 1, true, true, false},
    {"two heads of keys, biases", 150, 4, 2, false, false, true},
    {"tied, one chunk", 150, 4, 4, true, false, true},
};

class TensorParallel : public OnRanks {
 protected:
  static ModelConfig config_of(const SplitShape& s) {
    ModelConfig c = tiny_config(s.vocabulary);
    c.num_heads = s.heads;
    c.num_kv_heads = s.kv_heads;
    c.tie_word_embeddings = s.tied;
    c.qk_norm = s.qk_norm;
    c.qkv_bias = c.o_bias = c.mlp_bias = s.biases;
    return c;
  }
  std::unique_ptr<Model> make(const SplitShape& s, DType dtype, bool split) {
    const ModelConfig config = config_of(s);
    ModelOptions options{dtype, 64, /*with_gradients=*/true};
    if (split) options.splits = {tp_.get()};
    auto model = std::make_unique<Model>(config, options);
    random_init(model->parameters(), config, 5);
    return model;
  }
  static std::vector<Trajectory> sequences(int64_t vocabulary) {
    std::vector<Trajectory> all;
    for (const auto& [prompt, response] : {std::pair{3, 9}, {1, 20}, {17, 1}}) {
      Trajectory& t = all.emplace_back();
      t.prompt_tokens = random_ids(prompt, static_cast<int32_t>(vocabulary), static_cast<uint64_t>(prompt));
      t.response.tokens =
          random_ids(response, static_cast<int32_t>(vocabulary), static_cast<uint64_t>(response + 50));
    }
    return all;
  }
  /// Gradients of the whole model are compared row by row with what this rank has of them.
  void expect_gradients(const std::string& name, const Model& got, const Model& want) {
    ASSERT_EQ(got.parameters().list().size(), want.parameters().list().size());
    for (size_t i = 0; i < got.parameters().list().size(); ++i) {
      const Parameter &own = got.parameters().list()[i], &whole = want.parameters().list()[i];
      const int64_t width = whole.spec.size() / whole.spec.shape[0];
      Values rows;
      for (const RowSpan& span : own.spans)
        for (int64_t k = span.whole * width; k < (span.whole + span.rows) * width; ++k)
          rows.push_back(whole.grad.as<double>()[k]);
      expect_near(name + ": " + own.spec.name,
                  {own.grad.as<double>(), own.grad.as<double>() + own.grad.size()}, rows, 1e-10);
    }
  }
  std::vector<double> gradients(Model& model, const SplitShape& s, bool split) {
    const std::vector<Trajectory> all = sequences(s.vocabulary);
    const std::vector<double> logprobs = target_gradients(backend_.ctx(), model, all, normal_values(30, 77));
    ParameterStore& store = model.parameters();
    for (const Unit& unit : store.units()) {
      store.settle_grads(backend_.ctx().lane, unit);
      if (split) sum_shared_gradients(backend_.ctx(), *tp_, store, unit);
    }
    return logprobs;
  }

  Backend backend_{Device::cpu};
  std::unique_ptr<Collectives> tp_ = collectives_of_all();
};

TEST_F(TensorParallel, LogProbsHaveTheBitsOfOneRank) {
  for (const SplitShape& s : kSplitShapes)
    for (const DType dtype : kStorageTypes) {
      ArenaScope scope(backend_.ctx().scratch);
      const auto whole = make(s, dtype, false), split = make(s, dtype, true);
      const std::vector<Trajectory> all = sequences(s.vocabulary);
      expect_same_bits(fmt::format("{}, {}", s.name, dtype_name(dtype)),
                       target_logprobs(backend_.ctx(), *split, all),
                       target_logprobs(backend_.ctx(), *whole, all));
    }
}

TEST_F(TensorParallel, GradientsAreThoseOfOneRankWithinRounding) {
  for (const SplitShape& s : kSplitShapes) {
    ArenaScope scope(backend_.ctx().scratch);
    const auto whole = make(s, DType::f64, false), split = make(s, DType::f64, true);
    gradients(*whole, s, false);
    gradients(*split, s, true);
    expect_gradients(s.name, *split, *whole);
  }
}

/// What several ranks have of a parameter would drift apart otherwise.
TEST_F(TensorParallel, GradientsThatRanksShareHaveTheSameBits) {
  for (const SplitShape& s : kSplitShapes) {
    ArenaScope scope(backend_.ctx().scratch);
    const auto split = make(s, DType::bf16, true);
    gradients(*split, s, true);
    for (const Parameter& p : split->parameters().list()) {
      const int64_t width = p.spec.size() / p.spec.shape[0] * dtype_size(p.grad.dtype);
      for (const RowSpan& span : p.spans) {
        const std::string mine(static_cast<const char*>(p.grad.data) + span.own * width,
                               static_cast<size_t>(span.rows * width));
        const std::vector<std::string> all = comm_->all_gather(mine, "test: gradients of all ranks");
        EXPECT_TRUE(span.num_ranks == 1 || mine == all[static_cast<size_t>(span.first_rank)])
            << s.name << ": " << p.spec.name;
      }
    }
  }
}

/// Random weights are those of the whole model, whatever ranks there are.
TEST_F(TensorParallel, RanksTogetherHaveEveryRowOfTheModelOnce) {
  for (const SplitShape& s : kSplitShapes) {
    const auto whole = make(s, DType::f32, false), split = make(s, DType::f32, true);
    for (size_t i = 0; i < whole->parameters().list().size(); ++i) {
      const Parameter &all = whole->parameters().list()[i], &own = split->parameters().list()[i];
      const int64_t width = all.spec.size() / all.spec.shape[0];
      double first_copies = 0;
      for (const RowSpan& span : own.spans) {
        EXPECT_EQ(
            std::memcmp(own.value.as<float>() + span.own * width, all.value.as<float>() + span.whole * width,
                        static_cast<size_t>(span.rows * width) * sizeof(float)),
            0)
            << own.spec.name;
        if (span.first_rank == comm_->rank()) first_copies += static_cast<double>(span.rows);
      }
      std::vector<double> rows{first_copies};
      comm_->all_reduce_sum(rows, "test: rows of all ranks");
      EXPECT_EQ(rows[0], static_cast<double>(all.spec.shape[0])) << own.spec.name;
    }
  }
}

}  // namespace temper
