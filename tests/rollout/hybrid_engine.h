#pragma once
// Random generations of a tiny hybrid model: each token has the log-prob, to the bit, that the packed pass of
// training and scoring gives, however its sequence was cut, shared, preempted and begun again, and whatever
// ran beside it; memory that nobody has is full of NaN.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "src/ops/backend.h"
#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/support/tiny_model.h"

namespace temper {

/// Gated delta nets in all layers but the third of each four.
inline ModelConfig hybrid_config(int64_t layers = 4) {
  ModelConfig c = tiny_config();
  c.family = "qwen3_5_text";
  c.num_layers = layers;
  c.is_hybrid = true;
  c.rotated_dim = 4;
  c.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 8, .taps = 4};
  for (int64_t i = 0; i < layers; ++i)
    if (i % 4 != 2) c.delta.layers.insert(i);
  return c;
}

/// The same with experts in all layers, one of them shared.
inline ModelConfig hybrid_moe_config() {
  ModelConfig c = hybrid_config();
  c.family = "qwen3_5_moe_text";
  c.moe = {.layers = {0, 1, 2, 3},
           .num_experts = 12,
           .experts_per_token = 3,
           .expert_size = 16,
           .shared_size = 24,
           .normalizes = true};
  return c;
}

/// Requests and an engine, both drawn from a seed.
class HybridRun {
 public:
  HybridRun(const Model& model, uint64_t seed, int64_t longest)
      : random_(seed), model_(model), longest_(longest) {
    options_ = {.sampling = {},
                .seed = seed,
                .max_new_tokens = 1 + draw(std::min<int64_t>(149, longest - 2)),
                .stop_token_ids = {7},
                .stop = {},
                .logit_bias = {},
                .num_sampleable = kTinyVocab};
    int64_t samples = 1 + draw(draw(8) == 0 ? 64 : 12);
    for (int64_t position = 0; samples > 0; ++position) {
      const auto of_one = static_cast<int32_t>(std::min(samples, 1 + draw(8)));
      requests_.push_back(tiny_request(position, 1 + draw(longest - options_.max_new_tokens), of_one));
      samples -= of_one;
    }
  }

  /// Returns how often the scheduler preempted.
  int64_t expect_packed_bits() {
    Backend backend(model_.device(), 1 + static_cast<int>(draw(2)));
    const RolloutCounters counters = generate(backend.ctx());
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : done_) all.push_back(&t);
    std::shuffle(all.begin(), all.end(), random_);
    expect_same(
        local_logprobs(backend.ctx(), model_, all, {.token_budget = longest_ * (1 + draw(4)), .cost = {}}),
        all);
    if (all.empty()) return counters.preemptions;
    // What follows a row changes nothing.
    Trajectory shorter = *all.front();
    const auto some = static_cast<size_t>(1 + draw(std::ssize(shorter.response.tokens)));
    shorter.response.tokens.resize(some);
    shorter.response.logprobs.resize(some);
    expect_same(local_logprobs(backend.ctx(), model_, std::vector<const Trajectory*>{&shorter},
                               {.token_budget = longest_, .cost = {}}),
                {&shorter});
    return counters.preemptions;
  }

 private:
  int64_t draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(1, below)));
  }

  EngineOptions engine_options() {
    const int64_t running = 1 + draw(64), of_longest = (longest_ + 15) / 16;
    constexpr int64_t kChunks[] = {1, 3, 20, 64, 150, 512};
    return {.scheduler = {running, kChunks[draw(6)]},
            .num_pages = of_longest + draw(2) * draw(8 * of_longest),
            .poison_free_pages = true,
            .graphs = draw(4) > 0,
            .find_pages = draw(2) == 0,
            .num_states = 1 + draw(draw(2) == 0 ? 4 : running)};
  }

  /// Requests come while others are at work; some are cancelled.
  RolloutCounters generate(Ctx& c) {
    Engine engine(model_, engine_options(), c.lane);
    Generation generation(engine, options_, nullptr);
    std::map<size_t, Request> open;
    for (size_t added = 0; added < requests_.size() || !generation.done();) {
      if (added < requests_.size() && (generation.done() || draw(2) == 0)) {
        open.emplace(generation.add(requests_[added]), requests_[added]);
        ++added;
      }
      if (!open.empty() && draw(200) == 0) {
        generation.cancel(open.begin()->first);
        open.erase(open.begin());
      }
      if (generation.done()) continue;
      for (Generation::Finished& f : generation.step(c)) {
        const Request r = open.extract(f.request).mapped();
        for (Response& response : f.responses) {
          Trajectory& t = done_.emplace_back();
          t.prompt_tokens = r.prompt;
          t.response = std::move(response);
        }
      }
    }
    EXPECT_TRUE(open.empty());
    return generation.counters();
  }

  static void expect_same(const std::vector<std::vector<double>>& got,
                          const std::vector<const Trajectory*>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<double>& want = all[i]->response.logprobs;
      ASSERT_EQ(got[i].size(), want.size());
      for (size_t t = 0; t < want.size(); ++t)
        ASSERT_EQ(std::memcmp(&got[i][t], &want[t], sizeof want[t]), 0)
            << "a prompt of " << all[i]->prompt_tokens.size() << " tokens, token " << t << " of "
            << want.size() << ": " << got[i][t] << " packed, " << want[t] << " generated";
    }
  }

  std::mt19937_64 random_;
  const Model& model_;
  int64_t longest_;
  GenerateOptions options_;
  std::vector<Request> requests_;
  std::vector<Trajectory> done_;
};

/// Returns how often sequences were preempted.
inline int64_t expect_packed_bits(uint64_t first_seed, int runs, int64_t longest,
                                  const ModelConfig& config = hybrid_config(), Device device = Device::cpu) {
  int64_t preemptions = 0;
  std::map<DType, std::unique_ptr<Model>> models;
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(runs); ++seed) {
    const DType dtype = seed % 3 == 0 ? DType::f32 : DType::bf16;
    SCOPED_TRACE(fmt::format("{}, seed {}", dtype_name(dtype), seed));
    std::unique_ptr<Model>& model = models[dtype];
    if (!model) {
      model = std::make_unique<Model>(config, ModelOptions{dtype, longest + 1, false, device});
      random_init(model->parameters(), config, 5);
    }
    preemptions += HybridRun(*model, seed, longest).expect_packed_bits();
    if (::testing::Test::HasFailure()) break;
  }
  return preemptions;
}

}  // namespace temper
