// generate == score on the GPU, bit for bit: every log-prob that the rollout engine reports is compared with
// the one of the packed scoring pass, for full-width models of each family with 2 layers and the 0.6B shape
// whole. Batches of 1 to 256, lengths to 16k, chunks and pages that divide nothing, forks of shared prefixes,
// preemption, freed pages full of NaN, filters on.

#include "src/ops/rows.h"
#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/hybrid/shapes.h"
#include "tests/support/all_adapters.h"

namespace temper {
namespace {

int64_t compared_tokens = 0;
constexpr int64_t kContext = 16384;

ModelConfig shape(const std::string& family, int64_t hidden, int64_t ffn, int64_t layers, int64_t heads,
                  int64_t kv_heads, int64_t head_dim, int64_t vocab) {
  ModelConfig c;
  c.family = family;
  c.hidden_size = hidden;
  c.intermediate_size = ffn;
  c.num_layers = layers;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.vocab_size = vocab;
  c.max_position_embeddings = kContext;
  c.qkv_bias = family == "qwen2";
  c.qk_norm = family == "qwen3";
  c.tie_word_embeddings = hidden <= 1024;
  c.rope.theta = 1e6;
  return c;
}

/// Layers of the shapes of Qwen3-30B-A3B and Qwen1.5-MoE-A2.7B.
ModelConfig qwen3_moe() {
  ModelConfig c = shape("qwen3", 2048, 6144, 2, 32, 4, 128, 151936);
  c.family = "qwen3_moe";
  c.moe = {
      .layers = {0, 1}, .num_experts = 128, .experts_per_token = 8, .expert_size = 768, .normalizes = true};
  return c;
}
ModelConfig qwen2_moe() {
  ModelConfig c = shape("qwen2", 2048, 5632, 2, 16, 16, 128, 151936);
  c.family = "qwen2_moe";
  c.moe = {
      .layers = {0, 1}, .num_experts = 60, .experts_per_token = 4, .expert_size = 1408, .shared_size = 5632};
  return c;
}

/// Adapters of all linear layers.
ModelConfig with_adapters(ModelConfig c) {
  c.adapters = adapters_of_all(32);
  return c;
}

struct Named {
  const char* name;
  ModelConfig config;
  friend std::ostream& operator<<(std::ostream& out, const Named& n) { return out << n.name; }
};
std::vector<Named> models() {
  return {{"llama_8b_2_layers", shape("llama", 4096, 14336, 2, 32, 8, 128, 128256)},
          {"qwen2_7b_2_layers", shape("qwen2", 3584, 18944, 2, 28, 4, 128, 152064)},
          {"qwen3_8b_2_layers", shape("qwen3", 4096, 12288, 2, 32, 8, 128, 151936)},
          {"qwen3_8b_lora_2_layers", with_adapters(shape("qwen3", 4096, 12288, 2, 32, 8, 128, 151936))},
          {"qwen2_half_b_2_layers", shape("qwen2", 896, 4864, 2, 14, 2, 64, 151936)},
          {"qwen3_30b_a3b_2_layers", qwen3_moe()},
          {"qwen2_moe_2_layers", qwen2_moe()},
          {"qwen3_5_9b_4_layers", qwen3_5_9b(4, kContext)},
          {"qwen3_0_6b_whole", shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936)}};
}

struct Schedule {
  int64_t running, chunk, page_tokens, num_pages;
  bool graphs = true;
  std::vector<int32_t> stop = {};
  int64_t min_new_tokens = 0;
  std::map<int32_t, double> logit_bias = {};
};

class GpuOneNumerics : public ::testing::TestWithParam<Named> {
 protected:
  GpuOneNumerics() : gpu_(Device::cuda) {
    const ModelConfig& config = GetParam().config;
    model_ = std::make_unique<Model>(config, ModelOptions{DType::bf16, kContext, false, Device::cuda});
    // Weights that keep activations near 1 and the distribution neither flat nor certain.
    const double width = static_cast<double>(config.hidden_size);
    fill_parameters(model_->parameters(), 0.7 / std::sqrt(width), 3.0 / std::sqrt(width));
  }

  Request request(int64_t position, int64_t length, int32_t samples) const {
    return {position,
            random_ids(length, static_cast<int32_t>(model_->config().vocab_size),
                       static_cast<uint64_t>(1000 + position)),
            samples};
  }

  using Groups = std::vector<std::vector<Response>>;
  Groups generate(const std::vector<Request>& requests, int64_t new_tokens, const SampleOptions& sampling,
                  const Schedule& schedule, RolloutCounters* counters = nullptr) {
    const EngineOptions options{.scheduler = {schedule.running, schedule.chunk},
                                .page_tokens = schedule.page_tokens,
                                .num_pages = schedule.num_pages,
                                .poison_free_pages = true,
                                .graphs = schedule.graphs};
    Engine engine(*model_, options, gpu_.ctx().lane);
    GenerateOptions how;
    how.sampling = sampling;
    how.seed = 7;
    how.max_new_tokens = new_tokens;
    how.stop_token_ids = schedule.stop;
    how.min_new_tokens = schedule.min_new_tokens;
    how.logit_bias = schedule.logit_bias;
    how.num_sampleable = model_->config().vocab_size - 100;
    Groups groups(requests.size());
    const RolloutCounters counted =
        engine.generate(gpu_.ctx(), requests, how, nullptr,
                        [&](size_t i, std::vector<Response> done) { groups[i] = std::move(done); });
    if (counters != nullptr) *counters = counted;
    return groups;
  }

  /// Scores all responses in packs of about 8,192 rows; every bit of every log-prob must agree.
  void expect_score_agrees(const std::vector<Request>& requests, const Groups& groups, double temperature,
                           const std::string& what) {
    std::vector<Trajectory> list;
    for (size_t i = 0; i < groups.size(); ++i)
      for (const Response& c : groups[i]) {
        Trajectory t;
        t.prompt_tokens = requests[i].prompt;
        t.response = c;
        list.push_back(std::move(t));
      }
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : list) all.push_back(&t);
    int64_t differing = 0, tokens = 0;
    double sum = 0;
    for (size_t begin = 0; begin < all.size();) {
      std::vector<int32_t> batch;
      for (int64_t rows = 0; begin < all.size() && (rows == 0 || rows + packed_length(*all[begin]) <= 8192);
           ++begin) {
        rows += packed_length(*all[begin]);
        batch.push_back(static_cast<int32_t>(begin));
      }
      Ctx& c = gpu_.ctx();
      ArenaScope scope(c.scratch);
      const Microbatch mb = pack(all, batch);
      const Tensor hidden = target_hidden(c, *model_, mb, nullptr);
      const CTensor targets = to_device(c, view_of(mb.targets.data(), {hidden.dim(0)}));
      const std::vector<double> scored =
          to_host<double>(c, model_->head().forward(c, hidden, targets, temperature).logprob);
      for (size_t i = 0; i < scored.size(); ++i) {
        const double sampled =
            all[static_cast<size_t>(mb.sequence[i])]->response.logprobs[static_cast<size_t>(mb.offset[i])];
        differing += std::bit_cast<uint64_t>(sampled) != std::bit_cast<uint64_t>(scored[i]);
        sum += sampled;
      }
      tokens += static_cast<int64_t>(scored.size());
    }
    compared_tokens += tokens;
    EXPECT_EQ(differing, 0) << what;
    EXPECT_LT(sum / static_cast<double>(tokens), -0.3) << what;
    std::printf("%-22s %-28s %ld of %ld log-probs differ, mean %.2f\n", GetParam().name, what.c_str(),
                differing, tokens, sum / static_cast<double>(tokens));
  }

  static void expect_same(const Groups& a, const Groups& b, const std::string& what) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].size(), b[i].size());
      for (size_t k = 0; k < a[i].size(); ++k) {
        EXPECT_EQ(a[i][k].tokens, b[i][k].tokens) << what << ", prompt " << i << ", sample " << k;
        EXPECT_EQ(a[i][k].logprobs, b[i][k].logprobs) << what << ", prompt " << i << ", sample " << k;
      }
    }
  }

  Backend gpu_;
  std::unique_ptr<Model> model_;
};

TEST_P(GpuOneNumerics, FullBatches) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 64; ++i) requests.push_back(request(i, 1 + i * 37 % 300, 8));
  const Groups groups = generate(requests, 400, {}, {256, 2048, 64, 4096});
  expect_score_agrees(requests, groups, 1.0, "256 running");
}

/// One token in a hundred ends a response: the batch drains from 256 to 1 through every bucket. Graphs on and
/// off.
TEST_P(GpuOneNumerics, DrainingBatches) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 40; ++i) requests.push_back(request(300 + i, 1 + i * 53 % 400, 8));
  const auto vocab = static_cast<int32_t>(model_->config().vocab_size);
  const std::vector<int32_t> stop = random_ids(vocab / 100, vocab, 12);
  const Groups groups = generate(requests, 300, {}, {256, 1000, 64, 4096, true, stop});
  expect_score_agrees(requests, groups, 1.0, "draining");
  expect_same(groups, generate(requests, 300, {}, {256, 1000, 64, 4096, false, stop}), "graphs off");
}

/// Wide layers of models with experts, and of a hybrid one, whose rows go over many chunks of its rule.
class GpuWideNumerics : public GpuOneNumerics {};

/// 1,024,000 log-probs, beside steps that are not recorded.
TEST_P(GpuWideNumerics, AMillionTokens) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 128; ++i) requests.push_back(request(i, 1 + i * 37 % 300, 8));
  const Groups groups = generate(requests, 1000, {}, {256, 2048, 64, 6000});
  expect_score_agrees(requests, groups, 1.0, "a million tokens");
  expect_same(groups, generate(requests, 1000, {}, {256, 2048, 64, 6000, false}), "graphs off");
}

/// Prompts to 16k in chunks that divide nothing, a decode step among them.
TEST_P(GpuOneNumerics, LongPrompts) {
  std::vector<Request> requests;
  for (int64_t length : {1000, 1023, 2047, 4100, 8191, 16300})
    requests.push_back(request(100 + length, length, 2));
  const Groups groups = generate(requests, 60, {.temperature = 0.9}, {256, 1777, 16, 4000});
  expect_score_agrees(requests, groups, 0.9, "prompts to 16k");
}

TEST_P(GpuOneNumerics, ScheduleDoesNotMatter) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 10; ++i) requests.push_back(request(200 + i, 1 + i * 131 % 1200, 3));
  const SampleOptions sampling{.temperature = 0.8, .top_k = 50, .top_p = 0.95, .min_p = 0.001};
  const Groups base = generate(requests, 40, sampling, {256, 2048, 64, 1024});
  expect_score_agrees(requests, base, 0.8, "filters on");
  expect_same(base, generate(requests, 40, sampling, {1, 97, 16, 1024}), "one at a time");
  expect_same(base, generate(requests, 40, sampling, {7, 33, 32, 512}), "7 running");
  RolloutCounters counters;
  expect_same(base, generate(requests, 40, sampling, {64, 500, 16, 79}, &counters), "few pages");
  EXPECT_GE(counters.preemptions, 3);
}

/// Everything in a few hundred tokens: what the sanitizers run (tools/sanitize_gpu.sh).
class GpuSmallModels : public GpuOneNumerics {
 protected:
  GpuSmallModels() {  // narrow models are sure of themselves
    const double width = std::sqrt(static_cast<double>(GetParam().config.hidden_size));
    fill_parameters(model_->parameters(), 0.7 / width, 0.7 / width);
  }
};

TEST_P(GpuSmallModels, EverythingAtOnce) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 5; ++i) requests.push_back(request(i, 1 + i * 37, 3));
  const SampleOptions sampling{.temperature = 0.8, .top_k = 50, .top_p = 0.95};
  const Groups groups = generate(requests, 6, sampling, {8, 100, 16, 160});
  expect_score_agrees(requests, groups, 0.8, "small");
  expect_same(
      groups,
      generate(requests, 6, {.temperature = 0.8, .top_k = 50, .top_p = 0.95}, {3, 33, 32, 100, false}),
      "graphs off");
}

/// Penalties, biases and a least length: the log-prob that is reported knows nothing of them.
TEST_P(GpuSmallModels, LogitEdits) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 4; ++i) requests.push_back(request(i, 1 + i * 41, 3));
  const SampleOptions penalties{.temperature = 0.8,
                                .top_p = 0.95,
                                .repetition_penalty = 1.3,
                                .frequency_penalty = 0.2,
                                .presence_penalty = 0.1};
  for (const SampleOptions& sampling : {SampleOptions{.temperature = 0.8}, penalties}) {
    const std::map<int32_t, double> bias{{7, 1.5}, {20, -INFINITY}};
    const std::vector<int32_t> stop = random_ids(300, 2000, 3);
    const Groups groups = generate(requests, 12, sampling, {8, 100, 16, 160, true, stop, 4, bias});
    expect_score_agrees(requests, groups, 0.8, "logit edits");
    expect_same(groups, generate(requests, 12, sampling, {3, 33, 32, 100, false, stop, 4, bias}),
                "graphs off");
    for (const std::vector<Response>& group : groups)
      for (const Response& one : group) {
        EXPECT_GE(one.tokens.size(), 4u);
        EXPECT_EQ(std::count(one.tokens.begin(), one.tokens.end(), 20), 0);
      }
  }
}

/// Narrow but for its heads, which kernels on tensor cores take.
ModelConfig small_hybrid() {
  ModelConfig c = qwen3_5_9b(4, kContext);
  c.hidden_size = 256;
  c.intermediate_size = 512;
  c.vocab_size = 3000;
  c.num_heads = 4, c.num_kv_heads = 2;
  c.delta.key_heads = 2, c.delta.value_heads = 4;
  return c;
}

std::vector<Named> small_models() {
  return {{"qwen3_5_heads_of_256", small_hybrid()},
          {"llama_heads_of_64", shape("llama", 256, 512, 2, 4, 2, 64, 3000)},
          {"qwen2_heads_of_128", shape("qwen2", 256, 576, 2, 4, 2, 128, 3000)},
          {"qwen3_heads_of_128", shape("qwen3", 512, 1024, 2, 8, 2, 128, 5000)},
          {"qwen3_heads_of_80", shape("qwen3", 240, 512, 1, 3, 1, 80, 2100)}};
}
INSTANTIATE_TEST_SUITE_P(Models, GpuSmallModels, ::testing::ValuesIn(small_models()),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(Models, GpuOneNumerics, ::testing::ValuesIn(models()),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(Models, GpuWideNumerics,
                         ::testing::Values(Named{"qwen3_30b_a3b_2_layers", qwen3_moe()},
                                           Named{"qwen2_moe_2_layers", qwen2_moe()},
                                           Named{"qwen3_5_9b_4_layers", qwen3_5_9b(4, kContext)}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const int code = temper::gpu_test_main(argc, argv);
  std::printf("one numerics on the GPU: %ld tokens compared\n", temper::compared_tokens);
  return code;
}
