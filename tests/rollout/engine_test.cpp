// How sequences end, what text they give, what is refused, and what is counted. That log-probs and samples do
// not depend on the schedule is in tests/e2e/one_numerics.h.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/models/layer_pass.h"
#include "src/ops/backend.h"
#include "src/ops/rows.h"
#include "tests/rollout/engine_run.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

const std::string kTokenizer = "tests/golden/tokenizer/minimind";

/// Calls the engine until every sample is finished, at most `tokens` tokens a sample and call.
Output run_in_cuts(Engine& engine, std::vector<Request> requests, GenerateOptions options, int64_t tokens,
                   const Tokenizer* tokenizer = nullptr) {
  Output all;
  all.groups.resize(requests.size());
  options.tokens_per_call = tokens;
  std::vector<size_t> at_work(requests.size());
  std::iota(at_work.begin(), at_work.end(), 0);
  while (!at_work.empty()) {
    std::vector<Request> now;
    for (const size_t i : at_work) now.push_back(requests[i]);
    Output part = run(engine, now, options, tokenizer);
    std::vector<size_t> left;
    for (size_t j = 0; j < now.size(); ++j) {
      bool unfinished = false;
      for (size_t k = 0; k < part.groups[j].size(); ++k) {
        const Response& c = part.groups[j][k];
        const size_t before = now[j].begun.empty() ? 0 : now[j].begun[k].tokens.size();
        EXPECT_LE(c.tokens.size() - before, static_cast<size_t>(tokens));
        unfinished = unfinished || c.finish == FinishReason::unfinished;
      }
      if (unfinished) left.push_back(at_work[j]);
      (unfinished ? requests[at_work[j]].begun : all.groups[at_work[j]]) = part.groups[j];
    }
    for (const auto& [of, text] : part.streamed) all.streamed[{at_work[of.first], of.second}] += text;
    all.counters.rows_prefilled += part.counters.rows_prefilled;
    all.counters.rows_generated += part.counters.rows_generated;
    all.counters.rows_recomputed += part.counters.rows_recomputed;
    at_work = std::move(left);
  }
  return all;
}

void expect_equal(const Output& a, const Output& b) {
  for (size_t i = 0; i < a.groups.size(); ++i) {
    ASSERT_EQ(a.groups[i].size(), b.groups[i].size());
    for (size_t k = 0; k < a.groups[i].size(); ++k) {
      const Response &x = a.groups[i][k], &y = b.groups[i][k];
      EXPECT_EQ(x.tokens, y.tokens) << i << " " << k;
      EXPECT_EQ(x.logprobs, y.logprobs) << i << " " << k;
      EXPECT_EQ(x.text, y.text) << i << " " << k;
      EXPECT_EQ(x.finish, y.finish) << i << " " << k;
    }
  }
  EXPECT_EQ(a.streamed, b.streamed);
}

/// Logits after the last of `tokens`, all of which go through the model at once.
std::vector<double> last_logits(const Model& model, const std::vector<int32_t>& tokens) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const auto n = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> borders{0, n}, last{n - 1};
  const Batch batch{view_of(tokens.data(), {n}), view_of(positions.data(), {n}), view_of(borders.data(), {2}),
                    nullptr};
  const Tensor hidden = forward_pass(c, model, batch);
  std::vector<double> logits;
  for (int32_t v = 0; v < kTinyVocab; ++v) {
    Tensor row = c.scratch.make({1, hidden.dim(1)}, hidden.dtype);
    gather_rows(c, row, hidden, view_of(last.data(), {1}));
    const TokenStats of = model.head().forward(c, row, view_of(&v, {1}), 1.0);
    logits.push_back(of.logprob.as<double>()[0] + of.lse.as<double>()[0]);
  }
  return logits;
}

TEST(Engine, LengthLimit) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const Output out = run(engine, {tiny_request(0, 5, 3), tiny_request(1, 40, 1)}, generate_options(17));
  ASSERT_EQ(out.groups[0].size(), 3u);
  ASSERT_EQ(out.groups[1].size(), 1u);
  for (const auto& group : out.groups)
    for (const Response& c : group) {
      EXPECT_EQ(c.tokens.size(), 17u);
      EXPECT_EQ(c.logprobs.size(), 17u);
      EXPECT_EQ(c.finish, FinishReason::length);
      EXPECT_TRUE(c.text.empty());
    }
  EXPECT_NE(out.groups[0][0].tokens, out.groups[0][1].tokens);
  EXPECT_EQ(out.counters.rows_prefilled, 45);
  EXPECT_EQ(out.counters.rows_shared, 10);
  EXPECT_EQ(out.counters.rows_generated, 4 * 16);
  EXPECT_EQ(out.counters.rows_recomputed, 0);
}

TEST(Engine, EndOfContextAndOfCache) {
  const auto model = tiny_model(DType::f32, kTinyVocab, /*context_tokens=*/48);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const Response full = run(engine, {tiny_request(0, 40, 1)}, generate_options(100)).groups[0][0];
  EXPECT_EQ(full.tokens.size(), 8u);
  EXPECT_EQ(full.finish, FinishReason::length);
  const Output last = run(engine, {tiny_request(0, 47, 2)}, generate_options(100));
  EXPECT_EQ(last.groups[0][1].tokens.size(), 1u);
  Engine small(*model, engine_options(/*num_pages=*/2), lane);
  const Output cut = run(small, {tiny_request(0, 20, 3)}, generate_options(100));
  for (const Response& c : cut.groups[0]) EXPECT_EQ(c.tokens.size(), 12u);
}

/// With the same weights a cut costs rows and changes nothing else.
TEST(Engine, CutsDoNotShow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = tiny_model(dtype);
    Lane lane;
    Engine engine(*model, engine_options(/*num_pages=*/24), lane);  // too few for all at full length
    GenerateOptions options = generate_options(40);
    options.stop_token_ids = {3, 50, 51};
    options.sampling.repetition_penalty = 1.1;
    options.sampling.frequency_penalty = 0.2;
    options.min_new_tokens = 2;
    const std::vector<Request> requests{tiny_request(0, 5, 8), tiny_request(1, 33, 3),
                                        tiny_request(2, 16, 1)};
    const Output whole = run(engine, requests, options);
    for (const int64_t tokens : {1, 3, 16, 17, 39, 40, 100}) {
      const Output cut = run_in_cuts(engine, requests, options, tokens);
      expect_equal(cut, whole);
      EXPECT_EQ(cut.counters.rows_prefilled, 5 + 33 + 16) << "a prompt counts once, later as recomputed";
      EXPECT_EQ(cut.counters.rows_recomputed > whole.counters.rows_recomputed, tokens < 40);
    }
  }
}

/// One run of versions for each call that added tokens, also where the weights stayed; all tokens are
/// trained.
TEST(Engine, ResponsesSayWhichWeightsSpoke) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  GenerateOptions options = generate_options(10);
  options.tokens_per_call = 4;
  std::vector<Request> requests{tiny_request(0, 5, 2)};
  using Runs = std::vector<std::pair<int64_t, int32_t>>;
  const std::vector<Runs> wanted{{{7, 4}}, {{7, 4}, {7, 4}}, {{7, 4}, {7, 4}, {9, 2}}};
  for (size_t call = 0; call < wanted.size(); ++call) {
    options.version = call < 2 ? 7 : 9;
    requests[0].begun = run(engine, requests, options).groups[0];
    const Response &on = requests[0].begun[0], &ended = requests[0].begun[1];
    EXPECT_EQ(on.versions, wanted[call]);
    EXPECT_EQ(on.mask, std::vector<uint8_t>(on.tokens.size(), 1));
    EXPECT_EQ(ended.versions, wanted[0]);
    requests[0].begun[1].finish = FinishReason::stop;
  }
}

TEST(Engine, StopIds) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const std::vector<Request> requests{tiny_request(0, 5, 8)};
  GenerateOptions options = generate_options(60);
  const Output free = run(engine, requests, options);
  options.stop_token_ids = {3, 50, 51};
  const Output stopped = run(engine, requests, options);
  int stops = 0;
  for (size_t k = 0; k < 8; ++k) {
    const Response &whole = free.groups[0][k], &cut = stopped.groups[0][k];
    const auto end = std::find_first_of(whole.tokens.begin(), whole.tokens.end(),
                                        options.stop_token_ids.begin(), options.stop_token_ids.end());
    const bool stops_here = end != whole.tokens.end();
    const auto n = static_cast<size_t>(end - whole.tokens.begin()) + stops_here;
    ASSERT_EQ(cut.tokens.size(), n) << "sample " << k;
    EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), whole.tokens.begin()));
    EXPECT_TRUE(std::equal(cut.logprobs.begin(), cut.logprobs.end(), whole.logprobs.begin()));
    EXPECT_EQ(cut.finish, stops_here ? FinishReason::stop : FinishReason::length);
    stops += stops_here;
  }
  EXPECT_GT(stops, 0);
}

/// The first min_new_tokens tokens hold no stop id; the next one may be one.
TEST(Engine, LeastLengthHoldsStopIdsBack) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  GenerateOptions options = generate_options(60);
  options.stop_token_ids = {3, 50, 51};
  options.logit_bias = {{3, 4.0}, {50, 4.0}};
  const std::vector<Request> requests{tiny_request(0, 5, 12), tiny_request(1, 40, 12)};
  const auto shortest = [&] {
    size_t least = 1000, stops = 0;
    const Output out = run(engine, requests, options);
    for (const auto& group : out.groups)
      for (const Response& c : group) {
        for (size_t i = 0; i + 1 < c.tokens.size(); ++i)
          EXPECT_EQ(std::count(options.stop_token_ids.begin(), options.stop_token_ids.end(), c.tokens[i]), 0);
        least = std::min(least, c.tokens.size());
        stops += c.finish == FinishReason::stop;
      }
    EXPECT_GT(stops, 20u);
    return least;
  };
  EXPECT_LT(shortest(), 5u);
  options.min_new_tokens = 9;
  EXPECT_EQ(shortest(), 10u);
  options.min_new_tokens = 60;
  const Output whole = run(engine, requests, options);
  for (const Response& c : whole.groups[0]) {
    EXPECT_EQ(c.tokens.size(), 60u);
    EXPECT_EQ(c.finish, FinishReason::length);
  }
}

/// Distinct ids of the responses, under penalties that make repeating hard or tempting.
TEST(Engine, PenaltiesActOnWhatTheSequenceHolds) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const Request request = tiny_request(0, 10, 6);
  const auto distinct = [&](const SampleOptions& sampling) {
    GenerateOptions options = generate_options(60);
    options.sampling = sampling;
    size_t ids = 0;
    const Output out = run(engine, {request}, options);
    for (const Response& c : out.groups[0]) {
      std::vector<int32_t> sorted = c.tokens;
      std::sort(sorted.begin(), sorted.end());
      ids += static_cast<size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
    }
    return ids;
  };
  const size_t free = distinct({});
  EXPECT_GT(distinct({.frequency_penalty = 2}), free + 20);
  EXPECT_GT(distinct({.presence_penalty = 2}), free + 20);
  EXPECT_GT(distinct({.repetition_penalty = 2}), free + 20);
  EXPECT_LT(distinct({.frequency_penalty = -2}), free - 60);
  EXPECT_LT(distinct({.repetition_penalty = 0.4}), free - 60);
}

/// Greedy against a loop in fp64 over the logits of the whole model: each token is the argmax after edits.
TEST(Engine, GreedyWithPenaltiesIsTheArgmaxOfTheFormulas) {
  const auto model = tiny_model(DType::f64);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const Request request = tiny_request(2, 9, 1);
  GenerateOptions options = generate_options(40);
  options.sampling = {
      .temperature = 0, .repetition_penalty = 1.3, .frequency_penalty = 0.2, .presence_penalty = 0.3};
  options.logit_bias = {{11, 1.0}, {30, -5.0}};
  options.stop_token_ids = {4};
  options.min_new_tokens = 12;
  const Response got = run(engine, {request}, options).groups[0][0];
  std::vector<int32_t> tokens = request.prompt;
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    std::vector<double> z = last_logits(*model, tokens);
    for (const auto& [id, bias] : options.logit_bias) z[static_cast<size_t>(id)] += bias;
    if (i < 12) z[4] = -INFINITY;
    for (int32_t v = 0; v < kTinyVocab; ++v) {
      double& x = z[static_cast<size_t>(v)];
      const auto count = std::count(tokens.begin() + 9, tokens.end(), v);
      if (std::count(tokens.begin(), tokens.end(), v) > 0) x = x > 0 ? x / 1.3 : x * 1.3;
      x -= 0.2 * static_cast<double>(count) + (count > 0 ? 0.3 : 0.0);
    }
    const auto best = static_cast<int32_t>(std::max_element(z.begin(), z.end()) - z.begin());
    ASSERT_EQ(got.tokens[i], best) << "token " << i;
    tokens.push_back(best);
  }
  EXPECT_GE(got.tokens.size(), 13u);
}

/// A stop token on the last allowed place is a stop.
TEST(Engine, StopIdAtTheLimit) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  GenerateOptions options = generate_options(1);
  const int32_t first = run(engine, {tiny_request(0, 5, 1)}, options).groups[0][0].tokens[0];
  options.stop_token_ids = {first};
  EXPECT_EQ(run(engine, {tiny_request(0, 5, 1)}, options).groups[0][0].finish, FinishReason::stop);
}

TEST(Engine, SamplesDependOnTheirKeyAlone) {
  const auto model = tiny_model(DType::bf16);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const GenerateOptions options = generate_options(20);
  const Request a = tiny_request(3, 9, 2), b = tiny_request(8, 30, 4);
  const Output both = run(engine, {a, b}, options), swapped = run(engine, {b, a}, options);
  Request other_position = a;
  other_position.data_position = 4;
  const Output other = run(engine, {other_position}, options);
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(both.groups[0][k].tokens, swapped.groups[1][k].tokens);
    EXPECT_EQ(both.groups[0][k].logprobs, swapped.groups[1][k].logprobs);
    EXPECT_NE(both.groups[0][k].tokens, other.groups[0][k].tokens);
  }
  GenerateOptions other_seed = options;
  other_seed.seed = 22;
  EXPECT_NE(run(engine, {a}, other_seed).groups[0][0].tokens, both.groups[0][0].tokens);
}

TEST(Engine, GreedyIsTheSameForAllSamples) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  GenerateOptions options = generate_options(25);
  const Output warm = run(engine, {tiny_request(0, 6, 3)}, options);
  options.sampling.temperature = 0;
  const Output greedy = run(engine, {tiny_request(0, 6, 3)}, options);
  EXPECT_EQ(greedy.groups[0][0].tokens, greedy.groups[0][1].tokens);
  EXPECT_EQ(greedy.groups[0][0].tokens, greedy.groups[0][2].tokens);
  EXPECT_NE(warm.groups[0][0].tokens, warm.groups[0][1].tokens);
  options.sampling = {.temperature = 1.0, .top_k = 1};
  EXPECT_EQ(run(engine, {tiny_request(0, 6, 1)}, options).groups[0][0].tokens, greedy.groups[0][0].tokens);
}

TEST(Engine, OnlySampleableIdsAreDrawn) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const auto largest = [&](int64_t num_sampleable) {
    int32_t id = 0;
    const Output out = run(engine, {tiny_request(0, 6, 8)}, generate_options(40, num_sampleable));
    for (const Response& c : out.groups[0])
      id = std::max(id, *std::max_element(c.tokens.begin(), c.tokens.end()));
    return id;
  };
  EXPECT_GT(largest(kTinyVocab), 80);
  EXPECT_LT(largest(40), 40);
  EXPECT_EQ(largest(1), 0);
}

TEST(Engine, PromptsThatDoNotFitAreRefused) {
  const auto model = tiny_model(DType::f32, kTinyVocab, /*context_tokens=*/100);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const GenerateOptions options = generate_options(4);
  expect_error(Exit::data, {"prompt 6", "too long", "100 tokens", "99"}, "fills the context", [&] {
    run(engine, {tiny_request(5, 10, 1), tiny_request(6, 100, 1)}, options);
  });
  expect_error(Exit::data, {"prompt 7", "no tokens"}, "empty",
               [&] { run(engine, {tiny_request(7, 0, 1)}, options); });
  Request foreign = tiny_request(9, 10, 1);
  foreign.prompt[3] = kTinyVocab;
  expect_error(Exit::data, {"prompt 9", "no token id", "96", "0 to 95"}, "an id of another vocabulary",
               [&] { run(engine, {foreign}, options); });
  Engine small(*model, engine_options(/*num_pages=*/2), lane);
  expect_error(Exit::data, {"prompt 8", "32 tokens", "31"}, "fills the cache",
               [&] { run(small, {tiny_request(8, 32, 1)}, options); });
  EXPECT_EQ(run(engine, {tiny_request(9, 99, 1)}, options).groups[0][0].tokens.size(), 1u);
  EXPECT_EQ(run(small, {tiny_request(9, 31, 1)}, options).groups[0][0].tokens.size(), 1u);
}

/// Beyond the words of a key two responses would share their noise.
TEST(Engine, EveryResponseHasNoiseOfItsOwn) {
  const auto model = tiny_model(DType::f32, kTinyVocab);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  expect_error(Exit::internal, {"4097 samples", "at 5"}, "samples",
               [&] { run(engine, {tiny_request(5, 10, SampleKey::kMaxSample + 1)}, generate_options(1)); });
  expect_error(Exit::internal, {"at 17592186044416"}, "position",
               [&] { run(engine, {tiny_request(SampleKey::kMaxPosition, 10, 1)}, generate_options(1)); });
}

/// An exception out of a callback ends the call, not the engine: it has all of its pages for the next one.
TEST(Engine, IsWholeAfterAnException) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(/*num_pages=*/6), lane);
  const std::vector<Request> requests{tiny_request(0, 20, 2), tiny_request(1, 40, 3)};
  const GenerateOptions options = generate_options(30);
  const Output before = run(engine, requests, options);
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const auto interrupted = [&](size_t, std::vector<Response>) { throw std::runtime_error("stop"); };
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW(engine.generate(c, requests, options, nullptr, interrupted), std::runtime_error);
  const Output after = run(engine, requests, options);
  for (size_t i = 0; i < requests.size(); ++i)
    for (size_t k = 0; k < before.groups[i].size(); ++k)
      EXPECT_EQ(after.groups[i][k].tokens, before.groups[i][k].tokens) << i << " " << k;
  EXPECT_EQ(after.counters.preemptions, before.counters.preemptions) << "pages are missing";
}

TEST(Engine, CacheBytesAreThoseOfItsPages) {
  const auto model = tiny_model(DType::bf16);
  Lane lane;
  Engine engine(*model, engine_options(/*num_pages=*/10), lane);
  EXPECT_EQ(engine.cache_bytes(),
            2 * 2 * 2 * 16 * 16 * 10 * 2);  // k and v, layers, heads, dh, tokens, pages, bytes
}

class EngineText : public ::testing::Test {
 protected:
  EngineText()
      : tokenizer_(Tokenizer::load(kTokenizer)),
        vocab_(tokenizer_.vocab_size()),
        model_(tiny_model(DType::f32, vocab_)),
        engine_(*model_, engine_options(), lane_) {}

  Output text_of(const GenerateOptions& options) {
    return run(engine_, {tiny_request(0, 5, 4, vocab_), tiny_request(1, 12, 2, vocab_)}, options,
               &tokenizer_);
  }

  Tokenizer tokenizer_;
  int64_t vocab_;
  std::unique_ptr<Model> model_;
  Lane lane_;
  Engine engine_;
};

TEST_F(EngineText, IsTheDecodedResponse) {
  const Output out = text_of(generate_options(50, vocab_));
  for (size_t i = 0; i < out.groups.size(); ++i)
    for (size_t k = 0; k < out.groups[i].size(); ++k) {
      const Response& c = out.groups[i][k];
      EXPECT_GT(c.text.size(), 50u);
      EXPECT_EQ(c.text, tokenizer_.decode(c.tokens, /*skip_special=*/true));
      EXPECT_EQ(c.text, out.streamed.at({i, static_cast<int32_t>(k)}));
    }
}

TEST_F(EngineText, StopStringsCutIt) {
  GenerateOptions options = generate_options(50, vocab_);
  const Output free = text_of(options);
  const std::string& text = free.groups[0][2].text;
  // Five characters from the middle of one sample and from near the start of another, on ASCII borders.
  const auto ascii_run = [](const std::string& s, size_t from) {
    while (!std::all_of(s.begin() + static_cast<ptrdiff_t>(from),
                        s.begin() + static_cast<ptrdiff_t>(from + 3),
                        [](char ch) { return static_cast<unsigned char>(ch) < 128; }))
      ++from;
    return s.substr(from, 3);
  };
  options.stop = {ascii_run(text, text.size() / 3), ascii_run(free.groups[1][0].text, 20), "not in any text"};
  const Output cut = text_of(options);
  int stops = 0;
  for (size_t i = 0; i < cut.groups.size(); ++i)
    for (size_t k = 0; k < cut.groups[i].size(); ++k) {
      const Response &whole = free.groups[i][k], &c = cut.groups[i][k];
      size_t at = std::string::npos;
      for (const std::string& stop : options.stop) at = std::min(at, whole.text.find(stop));
      EXPECT_EQ(c.text, whole.text.substr(0, at)) << i << " " << k;
      EXPECT_EQ(c.finish, at == std::string::npos ? FinishReason::length : FinishReason::stop);
      EXPECT_EQ(c.text, cut.streamed.at({i, static_cast<int32_t>(k)}))
          << "a part of a stop string was streamed";
      EXPECT_TRUE(std::equal(c.tokens.begin(), c.tokens.end(), whole.tokens.begin()));
      if (at == std::string::npos) continue;
      ++stops;
      // The last token completed the stop string: without it the text does not hold one.
      EXPECT_LT(c.tokens.size(), whole.tokens.size());
      const std::vector<int32_t> before(c.tokens.begin(), c.tokens.end() - 1);
      for (const std::string& stop : options.stop)
        EXPECT_EQ(tokenizer_.decode(before, true).find(stop), std::string::npos);
    }
  EXPECT_GE(stops, 2);
}

/// All that is trained: the text goes on to the end of the stop string, in one go or in cuts.
TEST_F(EngineText, KeepsTheStopStringWhereItIsAskedTo) {
  GenerateOptions options = generate_options(50, vocab_);
  const std::string text = text_of(options).groups[0][2].text;
  options.stop = {text.substr(text.size() / 3, 4), "not in any text"};
  const Output before = text_of(options);
  options.include_stop_text = true;
  const Output kept = text_of(options);
  int stops = 0;
  for (size_t i = 0; i < kept.groups.size(); ++i)
    for (size_t k = 0; k < kept.groups[i].size(); ++k) {
      const Response &b = before.groups[i][k], &r = kept.groups[i][k];
      const bool stopped = r.finish == FinishReason::stop;
      EXPECT_EQ(r.tokens, b.tokens);
      EXPECT_EQ(r.finish, b.finish);
      EXPECT_EQ(r.text, b.text + (stopped ? options.stop[0] : "")) << i << " " << k;
      EXPECT_EQ(r.text, kept.streamed.at({i, static_cast<int32_t>(k)}));
      stops += stopped;
    }
  EXPECT_GE(stops, 1);
  const std::vector<Request> requests{tiny_request(0, 5, 4, vocab_), tiny_request(1, 12, 2, vocab_)};
  for (const int64_t tokens : {1, 7})
    expect_equal(run_in_cuts(engine_, requests, options, tokens, &tokenizer_), kept);
}

/// A stop string that ends with one of the first min_new_tokens tokens is text like any other.
TEST_F(EngineText, LeastLengthHoldsStopStringsBack) {
  GenerateOptions options = generate_options(50, vocab_);
  const Output free = text_of(options);
  options.stop = {"e", "a", "1", " "};
  const Output early = text_of(options);
  options.min_new_tokens = 20;
  const Output cut = text_of(options);
  int stops = 0, held_back = 0;
  for (size_t i = 0; i < cut.groups.size(); ++i)
    for (size_t k = 0; k < cut.groups[i].size(); ++k) {
      const Response &whole = free.groups[i][k], &c = cut.groups[i][k];
      const std::vector<int32_t> first(whole.tokens.begin(), whole.tokens.begin() + 20);
      const std::string held = tokenizer_.decode(first, true);
      const size_t at = whole.text.find_first_of("ea1 ", held.size());
      EXPECT_EQ(c.text, whole.text.substr(0, at)) << i << " " << k;
      EXPECT_GT(c.tokens.size(), 20u);
      EXPECT_EQ(c.finish, at == std::string::npos ? FinishReason::length : FinishReason::stop);
      EXPECT_EQ(c.text, cut.streamed.at({i, static_cast<int32_t>(k)}));
      stops += at != std::string::npos;
      held_back += early.groups[i][k].tokens.size() <= 20;
    }
  EXPECT_GE(stops, 2);
  EXPECT_GE(held_back, 2);
}

TEST_F(EngineText, CutsDoNotShow) {
  GenerateOptions options = generate_options(50, vocab_);
  const std::string text = text_of(options).groups[0][2].text;
  options.stop = {text.substr(text.size() / 3, 4), "not in any text"};
  const Output whole = text_of(options);
  const std::vector<Request> requests{tiny_request(0, 5, 4, vocab_), tiny_request(1, 12, 2, vocab_)};
  for (const int64_t tokens : {1, 2, 7})
    expect_equal(run_in_cuts(engine_, requests, options, tokens, &tokenizer_), whole);
}

TEST_F(EngineText, SpecialTokensAreLeftOut) {
  GenerateOptions options = generate_options(50, vocab_);
  options.num_sampleable = 3;  // the special tokens of this vocabulary
  for (int32_t id = 0; id < 3; ++id) ASSERT_TRUE(tokenizer_.is_special(id));
  const Output out = text_of(options);
  for (const auto& group : out.groups)
    for (const Response& c : group) {
      EXPECT_EQ(c.tokens.size(), 50u);
      EXPECT_EQ(c.text, "");
    }
  EXPECT_TRUE(out.streamed.empty());
}

TEST_F(EngineText, StopStringsNeedATokenizer) {
  GenerateOptions options = generate_options(5, vocab_);
  options.stop = {"x"};
  expect_error(Exit::internal, {"tokenizer"}, "no tokenizer",
               [&] { run(engine_, {tiny_request(0, 5, 1)}, options, nullptr); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
