#pragma once
// Short runs whose trainer ranks share the model and its sums in one way or another, beside the run of one
// rank.

#include <cstring>

#include "tests/e2e/placed_run.h"

namespace temper {

/// Layers that no number of stages divides, a head of its own.
inline constexpr const char* kDeep = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 5, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

inline Placement layout(const std::string& name, int ranks, int tp, int pp, const std::string& more = "") {
  return {name, ranks, fmt::format("roles.trainer.tp={} roles.trainer.pp={} {}", tp, pp, more)};
}

inline const Placement kOne{"one", 1, ""};
/// Several ragged micro-batches, of one to three sequences.
inline const std::string kSmall = "rollout.max_prompt_tokens=30 train.max_tokens_per_microbatch=38 ";
inline const std::string kDeepModel = "model.path=deep ";

class LayoutRun : public PlacedRun {
 protected:
  void SetUp() override {
    PlacedRun::SetUp();
    ASSERT_EQ(program_.init_model("deep", kDeep), 0) << output();
  }
  /// `tolerance`: of the first step's metrics, whose later updates have weights of other sums.
  void expect_like_one_rank(const std::vector<Placement>& layouts, const std::string& more,
                            double tolerance = 1e-5) {
    std::vector<Run> runs = {{kOne, 0, "one", more}};
    for (const Placement& l : layouts) runs.push_back({l, 0, l.name, more});
    ASSERT_EQ(train_each(runs), 0) << output();
    const std::vector<Json> want = program_.metrics("one");
    EXPECT_GT(want[0].at("batch/num_microbatches").get<double>(), more.find(kSmall) == 0 ? 2 : 0);
    for (const Placement& l : layouts) {
      EXPECT_TRUE(rollouts(l.name, 1) == rollouts("one", 1)) << l.name;
      const std::vector<Json> got = program_.metrics(l.name);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].at("actor/rollout_logprob_diff_max").get<double>(), 0.0) << l.name;
      for (const char* key : {"actor/grad_norm", "actor/entropy", "actor/loss"})
        EXPECT_NEAR(got[0].at(key).get<double>(), want[0].at(key).get<double>(),
                    tolerance * std::abs(want[0].at(key).get<double>()))
            << l.name << ", " << key;
    }
    for (const Placement& l : layouts) std::filesystem::remove_all(program_.path("runs/" + l.name));
    std::filesystem::remove_all(program_.path("runs/one"));
  }
  /// A step ahead of the trainer: again from the start, and after every second step from `first` on.
  void expect_repeats_and_goes_on(const Placement& l, const std::string& more, int first = 1) {
    ASSERT_EQ(train_each({{l, 1, "whole", more}, {l, 1, "again", more}}), 0) << output();
    expect_same_run("again", "whole");
    std::vector<Run> rest;
    for (int step = first; step < kSteps; step += 2) {
      rest.push_back({l, 1, fmt::format("after-{}", step), more});
      copy_until("whole", rest.back().name, step);
    }
    ASSERT_EQ(train_each(rest), 0) << output();
    for (const Run& run : rest) expect_same_run(run.name, "whole");
  }
  /// Largest difference of two files of doubles, relative to the largest number.
  double difference(const std::string& a, const std::string& b) const {
    const std::string got = program_.read(a), want = program_.read(b);
    uint64_t header = 0;
    std::memcpy(&header, want.data(), sizeof header);
    const size_t data = sizeof header + header;
    EXPECT_EQ(got.size(), want.size());
    EXPECT_EQ(got.substr(0, data), want.substr(0, data));
    double most = 0, worst = 0;
    for (size_t at = data; at + sizeof(double) <= want.size(); at += sizeof(double)) {
      double x = 0, y = 0;
      std::memcpy(&x, got.data() + at, sizeof x);
      std::memcpy(&y, want.data() + at, sizeof y);
      most = std::max(most, std::abs(y));
      worst = std::max(worst, std::abs(x - y));
    }
    EXPECT_GT(most, 1e-6);
    return worst / most;
  }
};

}  // namespace temper
