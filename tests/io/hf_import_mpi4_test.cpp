// Four ranks import one model together: each reads its share and the dense part, and all have the digest that
// one rank has.

#include <algorithm>

#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_export.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

class ImportOnRanks : public OnRanks {
 protected:
  /// Eight experts; `rows` of the embedding, which the head has too where it is tied.
  void make_model(int64_t rows, bool tied = false) {
    if (comm_->rank() == 0) {
      write_file_atomic(join_path(folder_, "config.json"),
                        fmt::format(R"({{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "vocab_size": {}, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
      "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
      "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": {}, "norm_topk_prob": true,
      "torch_dtype": "float32"}})",
                                    rows, tied));
      init_model_folder(join_path(folder_, "config.json"), source(), parameter_specs,
                        {.seed = 1, .dtype = "fp32", .threads = 1});
    }
    comm_->barrier("a model");
  }
  std::string source() const { return join_path(folder_, "model"); }

  struct Loaded {
    Loaded(const std::string& path, const ShardPlace& place, Comm* ranks) : folder(ModelFolder::open(path)) {
      config = parse_model_config(folder.config(), nullptr, folder.config_path());
      folder.match_names(config);
      for (const ParamSpec& spec : parameter_specs(config)) store.add(spec, place);
      store.allocate(DType::f32, false);
      digest = import_weights(folder, config, store, ranks);
    }
    /// Rows of a parameter that are here, as those of the whole.
    void expect_rows_of(const Loaded& whole) const {
      for (size_t i = 0; i < store.list().size(); ++i) {
        const Parameter &own = store.list()[i], &all = whole.store.list()[i];
        const int64_t width = own.spec.size() / own.spec.shape[0];
        for (const RowSpan& span : own.spans)
          EXPECT_TRUE(std::equal(own.value.as<float>() + span.own * width,
                                 own.value.as<float>() + (span.own + span.rows) * width,
                                 all.value.as<float>() + span.whole * width))
              << own.spec.name;
      }
    }
    /// Stored bytes of what is here.
    int64_t own_bytes() const {
      int64_t bytes = 0;
      for (const Parameter& p : store.list())
        for (const RowSpan& span : p.spans) bytes += span.rows * (p.spec.size() / p.spec.shape[0]) * 4;
      return bytes;
    }
    ModelFolder folder;
    ModelConfig config;
    ParameterStore store;
    FileDigest digest;
  };
};

TEST_F(ImportOnRanks, ExpertsAreReadWhereTheyAre) {
  make_model(100);
  const Loaded whole(source(), {}, nullptr),
      own(source(), {.expert_rank = comm_->rank(), .expert_ranks = comm_->size()}, comm_.get());
  EXPECT_EQ(own.digest.digest, whole.digest.digest);
  EXPECT_EQ(own.digest.bytes, whole.digest.bytes);
  own.expect_rows_of(whole);
  EXPECT_EQ(whole.folder.bytes_read(), whole.digest.bytes);
  const int64_t experts = int64_t{2} * 8 * 3 * 32 * 64 * 4;  // bytes of them in two layers
  EXPECT_EQ(own.folder.bytes_read(), whole.digest.bytes - experts + experts / 4);
}

/// What is cut by rows is read where it is, and in turn, for the digest, what none has whole: here all
/// tensors that are cut, and pieces of the vocabulary at the ends of shares.
TEST_F(ImportOnRanks, RowsAreReadWhereTheyAreAndTheRestInTurn) {
  make_model(200'000, true);
  const Loaded whole(source(), {}, nullptr),
      own(source(), {.rank = comm_->rank(), .ranks = comm_->size()}, comm_.get());
  EXPECT_EQ(own.digest.digest, whole.digest.digest);
  own.expect_rows_of(whole);
  EXPECT_LT(own.folder.bytes_read(), own.own_bytes() + whole.digest.bytes / 4);
  EXPECT_LT(own.folder.bytes_read(), whole.digest.bytes / 2);
}

/// No two of them have a layer of the other.
TEST_F(ImportOnRanks, StagesReadTheirLayers) {
  make_model(100);
  const Loaded whole(source(), {}, nullptr),
      own(source(), {.units = comm_->rank() < 2 ? UnitSet{{{0, 2}}} : UnitSet{{{2, 4}}}}, comm_.get());
  EXPECT_EQ(own.digest.digest, whole.digest.digest);
  EXPECT_EQ(own.folder.bytes_read(), own.own_bytes());
}

/// A rank without anything takes its turn.
TEST_F(ImportOnRanks, WhatNobodyHasIsInTheDigest) {
  make_model(100);
  const Loaded whole(source(), {}, nullptr), own(source(), {.units = UnitSet{{{0, 1}}}}, comm_.get());
  EXPECT_EQ(own.digest.digest, whole.digest.digest);
  EXPECT_GT(own.folder.bytes_read(), own.own_bytes());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
