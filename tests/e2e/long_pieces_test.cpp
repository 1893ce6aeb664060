// One layer, or the head, of a long micro-batch on one thread takes longer than cluster.watchdog_seconds: its
// loops are progress piece by piece (core/parallel.h), and the run is not taken for a hang. Through the
// program itself.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

constexpr int kLimit = 2;  // seconds

/// Nearly all of a step is its one layer, or its head.
struct Piece {
  const char* name;
  int intermediate, vocabulary, numbers;
};
constexpr Piece kLayer{"layer", 20480, 6400, 1200}, kHead{"head", 64, 65536, 900};

class LongPieces : public RunFixture {
 protected:
  /// A model, and a line of data that counts.
  void prepare_piece(const Piece& piece) const {
    std::string response;
    for (int i = 0; i < piece.numbers; ++i) response += fmt::format("{} ", i);
    prepare(R"(
run.name = "run"
run.steps = 1
run.device = "cpu"
run.dtype = "fp32"
algorithm.name = "sft"
rollout.samples_per_prompt = 1
rollout.prompts_per_step = 1
train.samples_per_update = 1
model.path = "wide"
model.context_tokens = 4000
)",
            fmt::format("{{\"prompt\":\"Count.\",\"response\":\"{}\"}}\n", response));
    const std::string config = fmt::format(
        R"({{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 128,
  "intermediate_size": {}, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 16, "vocab_size": {}, "max_position_embeddings": 4096, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2}})",
        piece.intermediate, piece.vocabulary);
    ASSERT_EQ(program_.init_model("wide", config.c_str()), 0) << output();
  }

  /// The step is one micro-batch. A backward pass is twice a forward pass: where the step takes more than
  /// twice the limit, the backward pass of the piece takes longer than the limit.
  void expect_no_hang(const Piece& piece) const {
    prepare_piece(piece);
    ASSERT_EQ(program_.run(fmt::format("train run.toml cluster.watchdog_seconds={}", kLimit)), 0) << output();
    EXPECT_FALSE(exists("runs/run/missing-rank.txt"));
    const Json step = program_.metrics("run").back();
    EXPECT_GT(step.at("perf/total_num_tokens").get<double>(), 2 * piece.numbers) << "some were left out";
    const double seconds = step.at("timing_s/update_actor").get<double>();
    if (seconds < 2 * kLimit)
      GTEST_SKIP() << "a step of a wide " << piece.name << " takes only " << seconds << " s here";
  }
};

TEST_F(LongPieces, OfALayerAreNoHang) { expect_no_hang(kLayer); }
TEST_F(LongPieces, OfAHeadAreNoHang) { expect_no_hang(kHead); }

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
