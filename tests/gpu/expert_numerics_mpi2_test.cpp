// generate == score with experts over ranks: every log-prob that two ranks sample, half of the heads and of
// the experts each, is compared bit by bit with the packed scoring pass of one rank that has the whole model.
// Two layers of real width; as many tokens as half a minute gives, with decode steps recorded and not.

#include "src/core/stopwatch.h"
#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

constexpr int64_t kContext = 2048, kMostTokens = 1'000'000;
constexpr double kSeconds = 30;

ModelConfig shape(const std::string& family, int64_t heads, int64_t kv_heads, const MoeConfig& moe) {
  ModelConfig c;
  c.family = family;
  c.hidden_size = 2048;
  c.intermediate_size = 5632;
  c.num_layers = 2;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = 128;
  c.vocab_size = 151936;
  c.max_position_embeddings = kContext;
  c.qkv_bias = family == "qwen2_moe";
  c.qk_norm = family == "qwen3_moe";
  c.rope.theta = 1e6;
  c.moe = moe;
  return c;
}

class SampledOverExperts : public OnRanks {
 protected:
  std::unique_ptr<Model> make(const ModelConfig& config, Collectives* ranks) {
    ModelOptions options{DType::bf16, kContext, false, Device::cuda};
    options.splits.tp = options.splits.ep = ranks;
    return std::make_unique<Model>(config, options);
  }
  /// The rows of the whole model that the split one has.
  void copy_weights(Model& split, const Model& whole) {
    for (size_t i = 0; i < split.parameters().list().size(); ++i) {
      const Parameter &to = split.parameters().list()[i], &from = whole.parameters().list()[i];
      const int64_t width = from.value.bytes() / from.spec.shape[0];
      for (const RowSpan& span : to.spans)
        device::copy(gpu_.ctx().lane, static_cast<char*>(to.value.raw()) + span.own * width,
                     static_cast<const char*>(from.value.raw()) + span.whole * width, span.rows * width);
    }
    gpu_.ctx().lane.wait();
  }
  std::vector<Trajectory> sample(Engine& engine, int64_t first, int64_t vocabulary) {
    std::vector<Request> requests;
    for (int64_t i = first; i < first + 32; ++i)
      requests.push_back(
          {i, random_ids(1 + i * 37 % 300, static_cast<int32_t>(vocabulary), static_cast<uint64_t>(1000 + i)),
           8});
    GenerateOptions how;
    how.seed = 7;
    how.max_new_tokens = 200;
    how.stop_token_ids = random_ids(vocabulary / 400, static_cast<int32_t>(vocabulary), 12);  // batches drain
    how.num_sampleable = vocabulary - 100;
    std::vector<Trajectory> all;
    engine.generate(gpu_.ctx(), requests, how, nullptr, [&](size_t i, std::vector<Response> done) {
      for (Response& r : done) {
        Trajectory& t = all.emplace_back();
        t.prompt_tokens = requests[i].prompt;
        t.response = std::move(r);
      }
    });
    return all;
  }
  /// {log-probs that differ, all}; ranks take turns with the packs.
  std::pair<double, double> compare(const Model& whole, const std::vector<Trajectory>& list) {
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : list) all.push_back(&t);
    Ctx& c = gpu_.ctx();
    std::vector<double> counts(2, 0.0);
    int packs = 0;
    for (size_t begin = 0; begin < all.size(); ++packs) {
      std::vector<int32_t> batch;
      for (int64_t rows = 0; begin < all.size() && (rows == 0 || rows + packed_length(*all[begin]) <= 8192);
           ++begin) {
        rows += packed_length(*all[begin]);
        batch.push_back(static_cast<int32_t>(begin));
      }
      if (packs % comm_->size() != comm_->rank()) continue;
      ArenaScope scope(c.scratch);
      const Microbatch mb = pack(all, batch);
      const Tensor hidden = target_hidden(c, whole, mb, nullptr);
      const CTensor targets = to_device(c, view_of(mb.targets.data(), {hidden.dim(0)}));
      const std::vector<double> scored =
          to_host<double>(c, whole.head().forward(c, hidden, targets, 1.0).logprob);
      for (size_t i = 0; i < scored.size(); ++i) {
        const Response& r = all[static_cast<size_t>(mb.sequence[i])]->response;
        counts[0] += std::bit_cast<uint64_t>(r.logprobs[static_cast<size_t>(mb.offset[i])]) !=
                     std::bit_cast<uint64_t>(scored[i]);
      }
      counts[1] += static_cast<double>(scored.size());
    }
    comm_->all_reduce_sum(counts, "log-probs that differ");
    return {counts[0], counts[1]};
  }
  void expect_scored(const ModelConfig& config) {
    const std::unique_ptr<Model> whole = make(config, nullptr), split = make(config, tp_.get());
    const double width = std::sqrt(static_cast<double>(config.hidden_size));
    fill_parameters(whole->parameters(), 0.7 / width, 3.0 / width);
    copy_weights(*split, *whole);
    EngineOptions options{.scheduler = {256, 2048}, .page_tokens = 64, .num_pages = 3000};
    options.poison_free_pages = true;
    Engine recorded(*split, options, gpu_.ctx().lane);
    options.graphs = false;
    Engine plain(*split, options, gpu_.ctx().lane);
    double differing = 0, tokens = 0, generating = 0;
    const Stopwatch watch;
    for (int64_t round = 0; tokens < kMostTokens; ++round) {
      if (comm_->all_reduce_max(watch.seconds(), "the time") > kSeconds) break;
      const Stopwatch own;
      const std::vector<Trajectory> all =
          sample(round % 2 == 0 ? recorded : plain, 32 * round, config.vocab_size);
      generating += own.seconds();
      const auto [wrong, scored] = compare(*whole, all);
      differing += wrong, tokens += scored;
    }
    EXPECT_EQ(differing, 0) << config.family;
    EXPECT_GT(tokens, 0);
    if (comm_->rank() == 0)
      std::printf(
          "%s, ep 2 against one rank: %.0f of %.0f log-probs differ; %.0f sampled a second, %ld steps "
          "recorded\n",
          config.family.c_str(), differing, tokens, tokens / generating, recorded.captures());
  }

  Backend gpu_{Device::cuda};
  std::unique_ptr<Collectives> tp_ =
      test_world->make_collectives(0, test_world->rank(), Device::cuda, "tp", kTestWaitLimit);
};

TEST_F(SampledOverExperts, Qwen3) {
  expect_scored(shape("qwen3_moe", 32, 4,
                      {.layers = {0, 1},
                       .num_experts = 128,
                       .experts_per_token = 8,
                       .expert_size = 768,
                       .normalizes = true}));
}
TEST_F(SampledOverExperts, Qwen2) {
  expect_scored(shape("qwen2_moe", 16, 16,
                      {.layers = {0, 1},
                       .num_experts = 60,
                       .experts_per_token = 4,
                       .expert_size = 1408,
                       .shared_size = 5632}));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (!temper::select_own_gpu_or_first()) return 1;
  return temper::run_tests_on_ranks(argc, argv, 2);
}
