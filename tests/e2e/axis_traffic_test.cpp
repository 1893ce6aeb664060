// Bytes that trainer ranks send each other over each axis: what the plan predicts is what runs count.

#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

/// Every sample has as many tokens as it can have. The last update of a step is smaller, and its
/// micro-batches hold different numbers of sequences, on some ranks none.
constexpr const char* kConfig = R"(
run.name = "x"
run.steps = 1
reward.functions = ["exact"]
rollout.prompts_per_step = 5
rollout.samples_per_prompt = 2
rollout.max_prompt_tokens = 5
rollout.max_new_tokens = 8
rollout.ignore_eos = true
train.samples_per_update = 7
train.last_partial = "keep"
train.epochs_per_step = 2
train.max_tokens_per_microbatch = 30
)";

/// Heads of keys and values that tp 4 shares; layers that no number of stages divides; a tied head.
constexpr const char* kTied = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 5, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

/// Gated delta nets in two layers of three, whose key heads ranks of tp 4 would have together.
constexpr const char* kHybrid = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
  "linear_key_head_dim": 16, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "hidden_act": "silu",
  "full_attention_interval": 3, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "initializer_range": 0.2, "eos_token_id": 2,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}})";

/// Experts in two layers of three, one of them shared; each token takes two.
constexpr const char* kExperts = R"({"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
  "hidden_size": 48, "intermediate_size": 80, "moe_intermediate_size": 16,
  "shared_expert_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
  "norm_topk_prob": false, "mlp_only_layers": [1], "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "vocab_size": 6400, "max_position_embeddings": 64,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

struct Layout {
  int tp = 1, dp = 1, pp = 1, cp = 1;
  std::string more = {};
  int expert_copies = 1;  // of each expert, among ranks of tp
  int ep_beyond_tp = 1;
  std::string exchanges = {};  // the axis over which rows go to their experts

  int ranks() const { return tp * cp * dp * pp; }
  std::string keys() const {
    return fmt::format(
        "roles.trainer.tp={} roles.trainer.cp={} roles.trainer.pp={} train.max_tokens_per_microbatch={} {}",
        tp, cp, pp, 30 / cp, more);
  }
};

class AxisTraffic : public RunFixture {
 protected:
  void SetUp() override {
    std::string prompts;
    for (int i = 0; i < 13; ++i)
      prompts += fmt::format("{{\"tokens\":[{},7,9,11,{}],\"answer\":\"1\"}}\n", 20 + i, 40 + i);
    prepare(kConfig, prompts);
    ASSERT_EQ(program_.init_model("tied", kTied), 0) << output();
    ASSERT_EQ(program_.init_model("hybrid", kHybrid), 0) << output();
    ASSERT_EQ(program_.init_model("experts", kExperts), 0) << output();
  }
  void expect_as_planned(const Layout& l, const std::string& run) const {
    SCOPED_TRACE(fmt::format("{} ranks, {}", l.ranks(), l.keys()));
    ASSERT_EQ(program_.run(fmt::format("check run.toml --ranks {} --json {} 2> errors", l.ranks(), l.keys())),
              0)
        << output();
    const Json planned = parse_json(output(), "check").at("traffic").at("trainer");
    for (const Json& step : program_.metrics(run))
      for (const auto& [axis, size] : {std::pair{"tp", l.tp},
                                       {"cp", l.cp},
                                       {"dp", l.cp * l.dp * l.expert_copies},
                                       {"pp", l.pp},
                                       {"ep", l.ep_beyond_tp}}) {
        const std::string key = fmt::format("perf/comm_bytes/{}", axis);
        const double sent = step.value(key, 0.0), wanted = planned.value(axis, 0.0);
        EXPECT_EQ(step.contains(key), size > 1) << axis;
        EXPECT_EQ(wanted > 0, size > 1) << axis;
        // Which rows experts send is the router's affair; the plan takes each expert to have as many.
        if (l.exchanges == axis)
          EXPECT_NEAR(sent, wanted, 0.15 * wanted) << axis;
        else
          EXPECT_EQ(sent, wanted) << axis;
      }
  }
};

TEST_F(AxisTraffic, IsCountedAsPlanned) {
  const std::string tied = "model.path=tied", hybrid = "model.path=hybrid", experts = "model.path=experts";
  // Layers of two kinds on one stage, of one on the other; an end that is not trained.
  const std::string frozen = R"( 'train.freeze=["model.layers.1.*", "model.layers.3.mlp.*", "*.4.*norm*"]')",
                    end = R"( 'train.freeze=["model.embed_tokens.weight"]')";
  const std::vector<Layout> layouts = {
      {.tp = 2},
      {.dp = 2},
      {.pp = 2},
      {.dp = 3, .more = "roles.trainer.zero=2"},
      {.tp = 2, .dp = 2},
      {.cp = 2},
      {.tp = 2, .dp = 2, .cp = 2, .more = "roles.trainer.zero=2"},
      {.dp = 3, .more = "roles.trainer.zero=3 train.recompute.granularity=full"},
      {.dp = 2, .pp = 2, .more = tied + " roles.trainer.zero=3 roles.trainer.vpp=2"},
      {.dp = 2, .pp = 2, .more = tied + frozen},
      {.tp = 2, .dp = 2, .more = tied + frozen + " roles.trainer.zero=3"},
      {.dp = 3, .more = "roles.trainer.zero=2" + end},
      {.tp = 4, .more = tied},
      {.tp = 4, .more = hybrid},
      {.tp = 2, .cp = 2, .more = hybrid + " train.recompute.granularity=full"},
      {.dp = 2, .cp = 2, .more = hybrid + " roles.trainer.zero=3"},
      {.tp = 2, .dp = 2, .more = experts + " roles.trainer.ep=1", .expert_copies = 2},
      {.dp = 3, .more = experts + " roles.trainer.zero=3"},
      {.tp = 2,
       .pp = 2,
       .more = experts + " roles.trainer.ep=1 train.recompute.granularity=full",
       .expert_copies = 2},
      {.dp = 2, .more = experts + " roles.trainer.ep=2", .ep_beyond_tp = 2, .exchanges = "ep"},
      {.tp = 2, .more = experts + " roles.trainer.ep=2", .exchanges = "tp"},
      {.pp = 3, .more = tied + " train.recompute.granularity=full"},
      {.tp = 2, .dp = 2, .pp = 2, .more = tied + " train.recompute.granularity=selective"}};
  std::vector<RanksRun> runs;
  for (const Layout& l : layouts)
    runs.push_back({l.ranks(), fmt::format("train run.toml run.name={} {}", runs.size(), l.keys())});
  ASSERT_EQ(run_each(runs), 0) << output();
  for (size_t i = 0; i < layouts.size(); ++i) expect_as_planned(layouts[i], std::to_string(i));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
