// Routes that an engine records are those of one pass over the whole response: through chunks, shared
// prefixes, preemption and cuts, with any number of sequences at once.

#include <algorithm>
#include <numeric>

#include "src/models/layer_pass.h"
#include "tests/rollout/engine_run.h"

namespace temper {
namespace {

RouteShape shape_of(const ModelConfig& c) {
  return {std::ssize(c.moe.layers), c.moe.num_experts, c.moe.experts_per_token};
}

/// The experts of `tokens`, all of which go through the model at once.
Routes whole_pass(const Model& model, const std::vector<int32_t>& tokens) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const ModelConfig& config = model.config();
  const RouteShape shape = shape_of(config);
  const auto n = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> borders{0, n};
  RouterNotes notes;
  notes.chosen = c.scratch.make({config.num_layers, n, shape.chosen}, DType::i32);
  forward_pass(c, model,
               {.tokens = view_of(tokens.data(), {n}),
                .positions = view_of(positions.data(), {n}),
                .cu_seqlens = view_of(borders.data(), {2}),
                .routers = &notes});
  Routes routes = make_routes(shape);
  for (int64_t t = 0; t < n; ++t) {
    std::vector<int32_t> ids;
    for (const int64_t layer : config.moe.layers)
      for (int64_t j = 0; j < shape.chosen; ++j)
        ids.push_back(notes.chosen.as<int32_t>()[(layer * n + t) * shape.chosen + j]);
    append_route(routes, ids);
  }
  return routes;
}

/// The last layer alone, or all, or all but a dense one in between.
ModelConfig config_of(const std::set<int64_t>& layers, int64_t num_layers) {
  ModelConfig c = tiny_moe_config(0);
  c.num_layers = num_layers;
  c.moe.layers = layers;
  return c;
}

Output record(const Model& model, const std::vector<Request>& requests, int64_t pages, int64_t chunk,
              int64_t tokens_per_call = 0) {
  EngineOptions options = engine_options(pages);
  options.scheduler.prefill_chunk_tokens = chunk;
  options.routes = shape_of(model.config());
  Lane lane;
  Engine engine(model, options, lane);
  GenerateOptions generate = generate_options(20);
  generate.tokens_per_call = tokens_per_call;
  return run(engine, requests, generate);
}

void expect_routes(const Model& model, const std::vector<Request>& requests, const Output& out) {
  for (size_t i = 0; i < requests.size(); ++i)
    for (const Response& r : out.groups[i]) {
      std::vector<int32_t> tokens = requests[i].prompt;
      tokens.insert(tokens.end(), r.tokens.begin(), r.tokens.end() - 1);
      EXPECT_EQ(r.routes, whole_pass(model, tokens)) << "prompt " << i;
    }
}

TEST(RecordedRoutes, AreThoseOfAWholePass) {
  for (const auto& [layers, count] : {std::pair{std::set<int64_t>{0, 2}, 3}, {std::set<int64_t>{1}, 2}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto model = tiny_model_of(config_of(layers, count), dtype, 128);
      const std::vector<Request> requests{tiny_request(0, 5, 4), tiny_request(1, 33, 3),
                                          tiny_request(2, 1, 1)};
      const Output roomy = record(*model, requests, 64, 32), tight = record(*model, requests, 10, 7);
      EXPECT_EQ(roomy.counters.preemptions, 0);
      EXPECT_GT(tight.counters.preemptions, 0);
      expect_routes(*model, requests, roomy);
      for (size_t i = 0; i < requests.size(); ++i)
        for (size_t k = 0; k < roomy.groups[i].size(); ++k)
          EXPECT_EQ(tight.groups[i][k].routes, roomy.groups[i][k].routes) << i << " " << k;
    }
}

/// What older weights drew keeps the routes that it was drawn by; what comes has those of today.
TEST(RecordedRoutes, GoOnAfterACut) {
  const ModelConfig config = config_of({0, 2}, 3);
  const auto model = tiny_model_of(config, DType::f32, 128);
  std::vector<Request> requests{tiny_request(0, 6, 3)};
  const Output first = record(*model, requests, 64, 32, 8);
  requests[0].begun = first.groups[0];
  auto later = std::make_unique<Model>(config, ModelOptions{DType::f32, 128});
  random_init(later->parameters(), config, 6);
  const Output second = record(*later, requests, 64, 32);
  for (size_t k = 0; k < 3; ++k) {
    const Response &before = first.groups[0][k], &after = second.groups[0][k];
    ASSERT_EQ(before.tokens.size(), 8u);
    EXPECT_EQ(route_rows(before.routes), 6 + 7);
    EXPECT_EQ(route_rows(after.routes), 6 + std::ssize(after.tokens) - 1);
    std::vector<int32_t> tokens = requests[0].prompt;
    tokens.insert(tokens.end(), after.tokens.begin(), after.tokens.end() - 1);
    const Routes now = whole_pass(*later, tokens);
    EXPECT_TRUE(std::equal(before.routes.begin(), before.routes.end(), after.routes.begin()));
    EXPECT_TRUE(std::equal(now.begin() + std::ssize(before.routes), now.end(),
                           after.routes.begin() + std::ssize(before.routes)));
    EXPECT_NE(now, after.routes) << "the weights are others";
  }
}

TEST(RecordedRoutes, AreNoneWhereNothingIsRecorded) {
  const auto model = tiny_model_of(tiny_moe_config(0), DType::f32, 128);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const Output out = run(engine, {tiny_request(0, 5, 2)}, generate_options(9));
  for (const Response& r : out.groups[0]) EXPECT_TRUE(r.routes.empty());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
