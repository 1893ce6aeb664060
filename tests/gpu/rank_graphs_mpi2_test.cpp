// Decode steps of tensor parallel ranks, recorded with what goes between them: the tokens and
// log-probs of steps that are not recorded, and of one rank.

#include "src/nn/init.h"
#include "src/rollout/engine.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

class RankGraphs : public OnRanks {
 protected:
  static ModelConfig shape() {
    ModelConfig c;
    c.family = "qwen3";
    c.hidden_size = 256;
    c.intermediate_size = 512;
    c.num_layers = 2;
    c.num_heads = 8;
    c.num_kv_heads = 2;
    c.head_dim = 64;
    c.vocab_size = 5000;
    c.max_position_embeddings = 4096;
    c.qk_norm = true;
    c.initializer_range = 0.05;
    return c;
  }
  std::unique_ptr<Model> make(bool split) {
    ModelOptions options{DType::bf16, 2048, false, Device::cuda};
    if (split) options.splits.tp = tp_.get();
    auto model = std::make_unique<Model>(shape(), options);
    random_init(model->parameters(), shape(), 5);
    return model;
  }
  /// Batches that drain; one sequence crosses the 1,024 tokens of a bucket.
  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (const auto& [length, samples] : {std::pair{5, 3}, {45, 3}, {85, 2}, {1010, 1}}) {
      const int64_t position = std::ssize(all);
      all.push_back({position, random_ids(length, 5000, static_cast<uint64_t>(50 + position)), samples});
    }
    return all;
  }
  std::vector<Response> generate(Engine& engine, const SampleOptions& sampling = {}) {
    GenerateOptions options;
    options.seed = 3;
    options.max_new_tokens = 30;
    options.stop_token_ids = random_ids(100, 5000, 12);
    options.num_sampleable = 4900;
    options.sampling = sampling;
    const std::vector<Request> all = requests();
    std::vector<std::vector<Response>> groups(all.size());
    engine.generate(backend_.ctx(), all, options, nullptr,
                    [&](size_t i, std::vector<Response> responses) { groups[i] = std::move(responses); });
    std::vector<Response> flat;
    for (auto& group : groups)
      for (Response& r : group) flat.push_back(std::move(r));
    return flat;
  }
  static EngineOptions engine_options(bool graphs) {
    return {.scheduler = {64, 256}, .page_tokens = 32, .num_pages = 200, .graphs = graphs};
  }
  static void expect_same(const std::vector<Response>& got, const std::vector<Response>& want,
                          const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tokens, want[i].tokens) << what << ", response " << i;
      EXPECT_EQ(got[i].logprobs, want[i].logprobs) << what << ", response " << i;
    }
  }

  Backend backend_{Device::cuda};
  std::unique_ptr<Collectives> tp_ =
      test_world->make_collectives(0, test_world->rank(), Device::cuda, "tp", kTestWaitLimit);
};

TEST_F(RankGraphs, HaveTheBitsOfStepsThatAreNotRecordedAndOfOneRank) {
  ASSERT_STREQ(tp_->carrier(), carrier_of_all());
  const auto whole = make(false), split = make(true);
  const SampleOptions filters{.temperature = 0.8, .top_k = 40, .top_p = 0.9};
  Lane& lane = backend_.ctx().lane;
  Engine alone(*whole, engine_options(true), lane), plain(*split, engine_options(false), lane),
      recorded(*split, engine_options(true), lane);
  const std::vector<Response> wanted = generate(alone), filtered = generate(alone, filters);
  expect_same(generate(plain), wanted, "not recorded");
  expect_same(generate(recorded), wanted, "first call");
  EXPECT_GT(recorded.captures(), 0);
  expect_same(generate(recorded), wanted, "second call");
  const int64_t captures = recorded.captures();
  expect_same(generate(recorded), wanted, "third call");
  EXPECT_EQ(recorded.captures(), captures);
  expect_same(generate(recorded, filters), filtered, "filters");
  expect_same(generate(recorded, filters), filtered, "filters, again");
  EXPECT_EQ(plain.captures(), 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 2); }
