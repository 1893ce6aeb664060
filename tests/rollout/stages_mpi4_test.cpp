// An engine whose ranks have a stage of the model each, or a share of its heads: responses, texts and
// counters are those of one rank with the whole model, on every rank.

#include "src/comm/mesh.h"
#include "src/models/stages.h"
#include "src/nn/init.h"
#include "tests/rollout/engine_run.h"
#include "tests/rollout/hybrid_engine.h"
#include "tests/support/grid_shape.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

ModelConfig deep_config(bool tied) {
  ModelConfig c = tiny_config();
  c.num_layers = 9;
  c.tie_word_embeddings = tied;
  return c;
}

class StagesOfAnEngine : public OnRanks {
 protected:
  /// All four ranks: pp stages of tp neighbours.
  std::unique_ptr<Mesh> mesh_of(int tp, int pp) const {
    return std::make_unique<Mesh>(*test_world, std::vector<int>{0, 1, 2, 3},
                                  GridShape{.tp = tp, .dp = 4 / tp / pp, .pp = pp}, Device::cpu,
                                  kTestWaitLimit);
  }
  std::unique_ptr<Model> make(const ModelConfig& config, DType dtype, Mesh* mesh, int vpp = 1) const {
    ModelOptions options{dtype, kTinyContext};
    if (mesh) {
      options.splits.tp = &mesh->tensors(Axis::tp);
      const int pp = mesh->tensors(Axis::pp).size();
      options.layers = parts_of_stages(balanced_stages(config, pp * vpp),
                                       pp)[static_cast<size_t>(mesh->tensors(Axis::pp).rank())];
    }
    auto model = std::make_unique<Model>(config, options);
    random_init(model->parameters(), config, 5);
    return model;
  }
  /// Prompts of every length, some longer than a chunk of prefill, all with several samples.
  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (const auto& [position, length] : {std::pair{3, 1}, {4, 17}, {5, 90}, {6, 33}, {7, 2}, {8, 61}})
      all.push_back(tiny_request(position, length, 3));
    return all;
  }
  Output generate(const Model& model, Mesh* mesh, const EngineOptions& options,
                  const GenerateOptions& generate, const std::vector<Request>& of = requests()) {
    Lane lane;
    Engine engine(model, options, lane,
                  mesh ? Pipeline(mesh->tensors(Axis::pp), mesh->control(Axis::pp)) : Pipeline());
    return run(engine, of, generate);
  }
  static void expect_equal(const Output& got, const Output& want) {
    for (size_t i = 0; i < want.groups.size(); ++i) {
      ASSERT_EQ(got.groups[i].size(), want.groups[i].size());
      for (size_t k = 0; k < want.groups[i].size(); ++k) {
        const Response &x = got.groups[i][k], &y = want.groups[i][k];
        EXPECT_EQ(x.tokens, y.tokens) << i << ", " << k;
        EXPECT_TRUE(x.logprobs == y.logprobs) << i << ", " << k;
        EXPECT_EQ(x.finish, y.finish) << i << ", " << k;
      }
    }
  }
  /// Compares ranks in each of these ways with the whole model that has plenty of pages.
  void compare(const ModelConfig& config, DType dtype, const EngineOptions& options,
               const GenerateOptions& how) {
    const Output want = generate(*make(config, dtype, nullptr), nullptr, engine_options(), how);
    for (const auto& [tp, pp, vpp] :
         {std::array{1, 2, 1}, {2, 2, 1}, {1, 4, 1}, {2, 2, 2}, {1, 2, 4}, {1, 4, 2}}) {
      SCOPED_TRACE(fmt::format("tp {} pp {} vpp {}, {}, tied: {}", tp, pp, vpp, dtype_name(dtype),
                               config.tie_word_embeddings));
      const std::unique_ptr<Mesh> mesh = mesh_of(tp, pp);
      const std::unique_ptr<Model> model = make(config, dtype, mesh.get(), vpp);
      const Output got = generate(*model, mesh.get(), options, how);
      expect_equal(got, want);
      EXPECT_EQ(got.counters.preemptions > 0, options.num_pages < engine_options().num_pages);
      EXPECT_EQ(got.counters.rows_generated, want.counters.rows_generated);
      EXPECT_EQ(got.counters.rows_shared, want.counters.rows_shared);
    }
  }
};

TEST_F(StagesOfAnEngine, HaveTheBitsOfOneRank) {
  for (const bool tied : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16})
      compare(deep_config(tied), dtype, engine_options(), generate_options(12));
}

/// Few pages, so that sequences lose theirs and are prefilled again, in small chunks.
TEST_F(StagesOfAnEngine, TakePagesFromTheSameSequences) {
  EngineOptions tight = engine_options(12);
  tight.scheduler = {.max_running_sequences = 7, .prefill_chunk_tokens = 5};
  compare(deep_config(true), DType::f32, tight, generate_options(30));
}

/// What samples have from an earlier call is prefilled in the pages that they share with their prompt.
TEST_F(StagesOfAnEngine, GoOnWithWhatWasBegun) {
  const ModelConfig config = deep_config(true);
  GenerateOptions how = generate_options(20);
  const Output want = generate(*make(config, DType::f32, nullptr), nullptr, engine_options(), how);
  how.tokens_per_call = 7;
  for (const auto& [pp, vpp] : {std::pair{2, 1}, {2, 4}, {4, 2}}) {
    SCOPED_TRACE(fmt::format("pp {} vpp {}", pp, vpp));
    const std::unique_ptr<Mesh> mesh = mesh_of(1, pp);
    const std::unique_ptr<Model> model = make(config, DType::f32, mesh.get(), vpp);
    std::vector<Request> rest = requests();
    Output got;
    for (int call = 0; call < 3; ++call) {
      got = generate(*model, mesh.get(), engine_options(), how, rest);
      for (size_t i = 0; i < rest.size(); ++i) rest[i].begun = got.groups[i];
      EXPECT_EQ(got.groups[2][0].tokens.size(), std::min<size_t>(20, 7 * static_cast<size_t>(call + 1)));
    }
    expect_equal(got, want);
  }
}

/// Each of the ranks counts what its sequences hold.
TEST_F(StagesOfAnEngine, EditLogitsAlike) {
  GenerateOptions how = generate_options(16);
  how.sampling = {.temperature = 0.9,
                  .top_k = 20,
                  .top_p = 0.95,
                  .repetition_penalty = 1.3,
                  .frequency_penalty = 0.4,
                  .presence_penalty = 0.2};
  how.min_new_tokens = 4;
  for (int32_t id = 0; id < kTinyVocab; id += 7) how.stop_token_ids.push_back(id);
  compare(deep_config(false), DType::f32, engine_options(), how);
}

/// Too few states for all, and chunks that get full while several steps are under way; of four ranks that
/// share heads two have the same key head.
TEST_F(StagesOfAnEngine, KeepStatesOfTheirLayersAndHeads) {
  const ModelConfig config = hybrid_config(9);
  EngineOptions tight = engine_options(14);
  tight.scheduler = {.max_running_sequences = 7, .prefill_chunk_tokens = 21};
  tight.num_states = 5;
  const Output want =
      generate(*make(config, DType::bf16, nullptr), nullptr, engine_options(100), generate_options(50));
  for (const auto& [tp, pp, vpp] :
       {std::array{1, 2, 1}, {1, 2, 4}, {1, 4, 2}, {2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 2, 4}})
    for (const EngineOptions& options : {engine_options(100), tight}) {
      SCOPED_TRACE(fmt::format("tp {} pp {} vpp {}, {} pages", tp, pp, vpp, options.num_pages));
      const std::unique_ptr<Mesh> mesh = mesh_of(tp, pp);
      const std::unique_ptr<Model> model = make(config, DType::bf16, mesh.get(), vpp);
      const Output got = generate(*model, mesh.get(), options, generate_options(50));
      expect_equal(got, want);
      EXPECT_EQ(got.counters.preemptions > 0, options.num_pages < 100);
      EXPECT_EQ(got.counters.rows_generated, want.counters.rows_generated);
    }
}

/// A cache holds the layers of its stage alone; an engine has one for as many pages as the whole model's.
TEST_F(StagesOfAnEngine, HoldKeysOfTheirLayers) {
  const ModelConfig config = deep_config(true);
  const std::unique_ptr<Mesh> mesh = mesh_of(1, 4);
  const std::unique_ptr<Model> model = make(config, DType::f32, mesh.get()),
                               whole = make(config, DType::f32, nullptr);
  Lane lane;
  const Engine stage(*model, engine_options(), lane,
                     Pipeline(mesh->tensors(Axis::pp), mesh->control(Axis::pp))),
      all(*whole, engine_options(), lane);
  const int64_t layers = model->layers().end - model->layers().begin;
  EXPECT_EQ(stage.cache_bytes() * config.num_layers, all.cache_bytes() * layers);
  EXPECT_EQ(stage.capacity(), all.capacity());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }
