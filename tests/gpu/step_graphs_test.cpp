// Steps belong to the engine: recorded once per bucket, replayed by every later call. Weights may have
// changed in their place, options and what others do with the context's arena too.

#include <algorithm>
#include <map>

#include "src/rollout/engine.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

using Groups = std::vector<std::vector<Response>>;

ModelConfig shape() {
  ModelConfig c;
  c.family = "qwen3";
  c.hidden_size = 512;
  c.intermediate_size = 1024;
  c.num_layers = 2;
  c.num_heads = 8;
  c.num_kv_heads = 2;
  c.head_dim = 128;
  c.vocab_size = 5000;
  c.max_position_embeddings = 8192;
  c.qk_norm = true;
  return c;
}

class StepGraph : public ::testing::Test {
 protected:
  StepGraph() : gpu_(Device::cuda), model_(shape(), ModelOptions{DType::bf16, 8192, false, Device::cuda}) {
    set_weights(0.7);
    // Batches of 12 rows that drain; one sequence crosses the 1,024, another the 2,048 and 4,096 tokens.
    for (int64_t i = 0; i < 4; ++i) add_request(i, 5 + 40 * i, 3);
    add_request(4, 1000, 1);
    add_request(5, 2030, 1);
    add_request(6, 4090, 1);
    options_.seed = 3;
    options_.max_new_tokens = 40;
    options_.stop_token_ids = random_ids(150, 5000, 12);
    options_.num_sampleable = 4900;
  }

  void set_weights(double scale) {
    const double width = std::sqrt(static_cast<double>(model_.config().hidden_size));
    fill_parameters(model_.parameters(), scale / width, scale / width);
  }
  void add_request(int64_t position, int64_t length, int32_t samples) {
    requests_.push_back({position, random_ids(length, 5000, static_cast<uint64_t>(50 + position)), samples});
  }

  static EngineOptions engine_options(bool graphs = true) {
    return {.scheduler = {64, 1024},
            .page_tokens = 32,
            .num_pages = 400,
            .poison_free_pages = true,
            .graphs = graphs};
  }
  Groups generate(Engine& engine) {
    Groups groups(requests_.size());
    engine.generate(gpu_.ctx(), requests_, options_, nullptr,
                    [&](size_t i, std::vector<Response> responses) { groups[i] = std::move(responses); });
    return groups;
  }
  Groups without_graphs() {
    Engine engine(model_, engine_options(/*graphs=*/false), gpu_.ctx().lane);
    return generate(engine);
  }
  static void expect_same(const Groups& a, const Groups& b, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].size(), b[i].size()) << what;
      for (size_t k = 0; k < a[i].size(); ++k) {
        EXPECT_EQ(a[i][k].tokens, b[i][k].tokens) << what << ", prompt " << i << ", sample " << k;
        EXPECT_EQ(a[i][k].logprobs, b[i][k].logprobs) << what << ", prompt " << i << ", sample " << k;
      }
    }
  }

  Backend gpu_;
  Model model_;
  std::vector<Request> requests_;
  GenerateOptions options_;
};

/// The first call runs what it meets once, the second records it, the third only replays.
TEST_F(StepGraph, ThirdOfEqualCallsRecordsAndAllocatesNothing) {
  const Groups wanted = without_graphs();
  Engine engine(model_, engine_options(), gpu_.ctx().lane);
  expect_same(generate(engine), wanted, "first call");
  const int64_t first = engine.captures();
  EXPECT_GT(first, 0);
  expect_same(generate(engine), wanted, "second call");
  const int64_t second = engine.captures(), free_bytes = device::gpu_memory().free;
  expect_same(generate(engine), wanted, "third call");
  EXPECT_EQ(engine.captures(), second);
  EXPECT_EQ(device::gpu_memory().free, free_bytes);
  std::printf("captures after each call: %ld, %ld, %ld\n", first, second, engine.captures());
}

/// Sequences grow through three sizes of page tables, each twice the one before.
TEST_F(StepGraph, PagesOfABucketDouble) {
  requests_.clear();
  add_request(9, 900, 1);
  options_.stop_token_ids = {};
  options_.max_new_tokens = 3500;
  const Groups wanted = without_graphs();
  Engine engine(model_, engine_options(), gpu_.ctx().lane);
  expect_same(generate(engine), wanted, "first call");
  EXPECT_EQ(engine.captures(), 4) << "up to 1,024, 2,048, 4,096 and 8,192 tokens";
  expect_same(generate(engine), wanted, "second call");
  EXPECT_EQ(engine.captures(), 4);
}

TEST_F(StepGraph, ReplaysSeeNewWeights) {
  options_.stop_token_ids = {};
  Engine engine(model_, engine_options(), gpu_.ctx().lane);
  const Groups before = generate(engine);
  generate(engine);
  const int64_t captures = engine.captures();
  set_weights(0.5);
  const Groups wanted = without_graphs();
  EXPECT_NE(wanted[0][0].logprobs, before[0][0].logprobs);
  expect_same(generate(engine), wanted, "new weights");
  EXPECT_EQ(engine.captures(), captures);
}

/// Temperature and seed are data; filters change which kernels run, so they have buckets of their own.
TEST_F(StepGraph, OptionsAreDataOrBuckets) {
  options_.stop_token_ids = {};
  Engine engine(model_, engine_options(), gpu_.ctx().lane);
  generate(engine);
  generate(engine);
  const int64_t captures = engine.captures();
  options_.sampling.temperature = 0.8;
  options_.seed = 4;
  expect_same(generate(engine), without_graphs(), "temperature and seed");
  EXPECT_EQ(engine.captures(), captures);
  options_.sampling.top_k = 20;
  options_.sampling.top_p = 0.9;
  expect_same(generate(engine), without_graphs(), "filters");
  EXPECT_GT(engine.captures(), captures);
  options_.sampling = {};
  options_.num_sampleable = 700;
  const Groups few = generate(engine);
  expect_same(few, without_graphs(), "700 ids");
  for (const std::vector<Response>& group : few)
    for (const Response& r : group) EXPECT_LT(*std::max_element(r.tokens.begin(), r.tokens.end()), 700);
}

/// Recorded addresses are the engine's own: what others keep in the context's arena stays what it is.
TEST_F(StepGraph, OthersMayUseTheArena) {
  Engine engine(model_, engine_options(), gpu_.ctx().lane);
  const Groups wanted = generate(engine);
  generate(engine);
  Ctx& c = gpu_.ctx();
  const ArenaScope scope(c.scratch);
  const Tensor kept = c.scratch.make({1 << 22}, DType::i32);
  device::fill(c.lane, kept.raw(), 0x5a, kept.bytes());
  expect_same(generate(engine), wanted, "another mark of the arena");
  for (const int32_t value : to_host<int32_t>(c, kept)) ASSERT_EQ(value, 0x5a5a5a5a);
}

TEST_F(StepGraph, AnEngineKeepsToItsLane) {
  Engine engine(model_, engine_options(), gpu_.ctx().lane);
  generate(engine);
  Backend other(Device::cuda);
  expect_error(Exit::internal, {"another lane"}, "another backend", [&] {
    engine.generate(other.ctx(), requests_, options_, nullptr, [](size_t, std::vector<Response>) {});
  });
}

/// Dialogues whose turns end at steps of their own, so that what comes next is prefilled beside others that
/// decode: few rows and many, by options of its own.
class Dialogues {
 public:
  explicit Dialogues(const GenerateOptions& options) : options_(options) {
    for (size_t i = 0; i < std::size(kObserved); ++i)
      histories_.push_back(random_ids(3 + 70 * static_cast<int64_t>(i), 5000, 90 + i));
  }

  /// What each turn of each dialogue said.
  std::map<std::pair<size_t, int>, Response> play(Ctx& c, Engine& engine) {
    Generation generation(engine, options_, nullptr);
    for (size_t i = 0; i < histories_.size(); ++i) ask(generation, i, 0);
    std::map<std::pair<size_t, int>, Response> said;
    while (!generation.done())
      for (Generation::Finished& f : generation.step(c)) {
        const auto [dialogue, turn] = asked_[f.request];
        Response& response = said[{dialogue, turn}] = std::move(f.responses.front());
        std::vector<int32_t>& history = histories_[dialogue];
        history.insert(history.end(), response.tokens.begin(), response.tokens.end());
        const auto observed =
            random_ids(kObserved[(dialogue + static_cast<size_t>(turn)) % std::size(kObserved)], 5000,
                       7 * dialogue + static_cast<size_t>(turn));
        history.insert(history.end(), observed.begin(), observed.end());
        if (turn + 1 < kTurns) ask(generation, dialogue, turn + 1);
      }
    return said;
  }

 private:
  static constexpr int kTurns = 6;
  static constexpr int64_t kObserved[] = {1, 2, 15, 16, 17, 40, 90, 200, 511, 513, 700};

  void ask(Generation& generation, size_t dialogue, int turn) {
    auto own = std::make_shared<GenerateOptions>(options_);
    own->seed = 10 * dialogue + static_cast<uint64_t>(turn);
    own->max_new_tokens = 4 + static_cast<int64_t>(5 * dialogue + 3 * static_cast<size_t>(turn)) % 17;
    if (dialogue == 4) own->sampling.top_k = 20;
    if (dialogue == 7) own->min_new_tokens = 3;
    Request request{static_cast<int64_t>(dialogue), histories_[dialogue], dialogue == 8 ? 3 : 1};
    request.own = std::move(own);
    generation.add(std::move(request));
    asked_.push_back({dialogue, turn});
  }

  GenerateOptions options_;
  std::vector<std::vector<int32_t>> histories_;
  std::vector<std::pair<size_t, int>> asked_;  // by number of the request
};

TEST_F(StepGraph, TurnsAreRecordedBesideThoseThatDecode) {
  const auto engine_of = [&](bool graphs, bool find_pages) {
    EngineOptions options = engine_options(graphs);
    options.find_pages = find_pages;
    options.scheduler.max_running_sequences = 9;
    return std::make_unique<Engine>(model_, options, gpu_.ctx().lane);
  };
  const auto play = [&](Engine& engine) { return Dialogues(options_).play(gpu_.ctx(), engine); };
  const auto wanted = play(*engine_of(false, true));
  EXPECT_EQ(wanted.size(), 66u);
  const auto recorded = engine_of(true, true), decoding = engine_of(true, false);
  int64_t captures = 0;
  for (int call = 1; call <= 3; ++call) {
    captures = recorded->captures();
    const auto said = play(*recorded);
    play(*decoding);
    for (const auto& [turn, response] : wanted) {
      const Response& got = said.at(turn);
      ASSERT_EQ(got.tokens, response.tokens) << "call " << call << ", " << turn.first << " " << turn.second;
      ASSERT_EQ(got.logprobs, response.logprobs)
          << "call " << call << ", " << turn.first << " " << turn.second;
    }
  }
  EXPECT_EQ(recorded->captures(), captures) << "the third of equal calls records nothing";
  EXPECT_GT(captures, decoding->captures() + 8) << "steps with turns, too";
  std::printf("captures with turns %ld, without %ld\n", captures, decoding->captures());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }
