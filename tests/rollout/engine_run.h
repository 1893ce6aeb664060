#pragma once
// One call of an engine of a tiny model, and all that came of it.

#include <gtest/gtest.h>

#include <map>

#include "src/ops/backend.h"
#include "src/rollout/engine.h"
#include "tests/support/tiny_model.h"

namespace temper {

struct Output {
  std::vector<std::vector<Response>> groups;
  std::map<std::pair<size_t, int32_t>, std::string> streamed;
  RolloutCounters counters;
};

inline EngineOptions engine_options(int64_t num_pages = 64) {
  return {.scheduler = {.max_running_sequences = 16, .prefill_chunk_tokens = 32},
          .num_pages = num_pages,
          .poison_free_pages = true};
}

inline GenerateOptions generate_options(int64_t max_new_tokens, int64_t num_sampleable = kTinyVocab) {
  return {.sampling = {},
          .seed = 21,
          .max_new_tokens = max_new_tokens,
          .stop_token_ids = {},
          .stop = {},
          .logit_bias = {},
          .num_sampleable = num_sampleable};
}

inline Output run(Engine& engine, const std::vector<Request>& requests, const GenerateOptions& options,
                  const Tokenizer* tokenizer = nullptr) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  Output out;
  out.groups.resize(requests.size());
  out.counters = engine.generate(
      c, requests, options, tokenizer,
      [&](size_t i, std::vector<Response> samples) {
        EXPECT_TRUE(out.groups[i].empty()) << "group " << i << " came twice";
        out.groups[i] = std::move(samples);
      },
      [&](const Engine::Grown& grown) {
        if (!grown.text.empty()) out.streamed[{grown.index, grown.sample}] += grown.text;
      });
  return out;
}

}  // namespace temper
