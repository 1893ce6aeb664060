// Requests that begin as others did take rows from the cache: other work, the same bits. Requests with
// options of their own, and requests that are cancelled, change nothing for others.

#include <random>

#include "tests/rollout/engine_run.h"

namespace temper {
namespace {

EngineOptions finding(int64_t num_pages) {
  EngineOptions o = engine_options(num_pages);
  o.find_pages = true;
  return o;
}

/// Requests of one sample: prompts, turns that go on from them, forks of both, and some that are alike.
class Dialogues {
 public:
  explicit Dialogues(uint64_t seed) : random_(seed) {}

  Request next() {
    Request r;
    r.data_position = number_++;
    if (!known_.empty() && draw(4) > 0) {
      r.prompt = known_[static_cast<size_t>(draw(std::ssize(known_)))];
      r.prompt.resize(static_cast<size_t>(1 + draw(std::ssize(r.prompt))));  // perhaps a part of it
    }
    for (int64_t i = draw(20); i >= 0; --i) r.prompt.push_back(static_cast<int32_t>(draw(kTinyVocab)));
    if (r.prompt.size() > 120) r.prompt.resize(120);
    return r;
  }
  void learn(const Request& request, const Response& response) {
    known_.push_back(request.prompt);
    known_.back().insert(known_.back().end(), response.tokens.begin(), response.tokens.end());
  }
  int64_t draw(int64_t below) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(below)); }

 private:
  std::mt19937_64 random_;
  int64_t number_ = 0;
  std::vector<std::vector<int32_t>> known_;
};

void expect_alike(const Response& a, const Response& b, const std::string& label) {
  EXPECT_EQ(a.tokens, b.tokens) << label;
  EXPECT_EQ(a.logprobs, b.logprobs) << label;
}

/// Through few pages and many, several at once, with some cancelled: each response is that of its request
/// alone in a cache where nothing is found.
TEST(FoundPages, AreTheRowsThatPrefillWouldMake) {
  const auto model = tiny_model(DType::bf16);
  Lane lane;
  Engine alone(*model, engine_options(64), lane);
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const GenerateOptions options = generate_options(12);
  for (const int64_t pages : {10, 24, 200})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Engine engine(*model, finding(pages), lane);
      Dialogues dialogues(seed);
      Generation generation(engine, options, nullptr);
      std::map<size_t, Request> open;
      for (int added = 0; added < 40 || !generation.done();) {
        if (added < 40 && (generation.done() || dialogues.draw(3) == 0)) {
          const Request r = dialogues.next();
          open.emplace(generation.add(r), r);
          ++added;
        }
        if (!open.empty() && dialogues.draw(60) == 0) {
          generation.cancel(open.begin()->first);
          open.erase(open.begin());
        }
        if (generation.done()) continue;
        for (const Generation::Finished& f : generation.step(c)) {
          const Request r = open.extract(f.request).mapped();
          const Output expected = run(alone, {r}, options);
          expect_alike(f.responses[0], expected.groups[0][0],
                       fmt::format("{} pages, seed {}, request {}", pages, seed, f.request));
          dialogues.learn(r, f.responses[0]);
        }
      }
      EXPECT_TRUE(open.empty());
      EXPECT_GT(generation.counters().rows_shared, pages < 24 ? 0 : 100) << pages << " pages, seed " << seed;
    }
}

/// With pages enough a turn costs what is new in it, and the row of the last token, which was never fed.
TEST(FoundPages, ATurnCostsWhatIsNewInIt) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, finding(64), lane);
  Backend backend(Device::cpu);
  int64_t found = 0;
  Generation generation(engine, generate_options(10), nullptr,
                        [&](const Engine::Grown& grown) { found = grown.found; });
  std::vector<int32_t> history = tiny_request(0, 21, 1).prompt;
  for (int turn = 0; turn < 6; ++turn) {
    const int64_t before = generation.counters().rows_prefilled;
    Request r{.data_position = turn, .prompt = history};
    generation.add(r);
    std::vector<Generation::Finished> finished;
    while (finished.empty()) finished = generation.step(backend.ctx());
    const int64_t fresh = turn == 0 ? 21 : 4;
    EXPECT_EQ(generation.counters().rows_prefilled - before, fresh) << turn;
    EXPECT_EQ(found, std::ssize(history) - fresh) << turn;
    const std::vector<int32_t>& said = finished[0].responses[0].tokens;
    history.insert(history.end(), said.begin(), said.end());
    for (const int32_t id : {5, 6, 7}) history.push_back(id);
  }
}

/// Requests with one beginning that come at once: one prefills it.
TEST(FoundPages, OneOfManyAlikePrefills) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, finding(64), lane);
  std::vector<Request> requests(6, tiny_request(3, 50, 1));
  for (int32_t i = 0; i < 6; ++i) requests[static_cast<size_t>(i)].first_sample = i;
  const Output out = run(engine, requests, generate_options(8));
  Request group = tiny_request(3, 50, 6);
  Engine other(*model, engine_options(), lane);
  const Output together = run(other, {group}, generate_options(8));
  for (size_t i = 0; i < 6; ++i)
    expect_alike(out.groups[i][0], together.groups[0][i], "first_sample is the sample of a group");
  EXPECT_EQ(out.counters.rows_prefilled, 50 + 5);  // and the last row of each other one
}

/// What is known of pages ends with the generation: other weights may come.
/// A known page that others' pages stand for may be forgotten and hold other ids: nothing is found behind it
/// then.
TEST(PageIndex, NothingIsKnownBehindAPageThatWasForgotten) {
  PageIndex index(2, 8);
  const std::vector<int32_t> first{1, 2, 3, 4}, other{9, 9, 3, 4};
  Noted a, b, c;
  index.note(first, std::vector<int32_t>{0}, 2, false, a);
  index.note(first, std::vector<int32_t>{2}, 2, false, b);
  EXPECT_EQ(b.last, 0) << "page 2 has the ids of page 0";
  index.let_go(0);
  EXPECT_EQ(index.drop_oldest(), std::vector<int32_t>{0});
  index.note(other, std::vector<int32_t>{0}, 2, false, c);
  index.note(first, std::vector<int32_t>{2, 3}, 4, true, b);
  EXPECT_EQ(index.find(other).tokens, 2);
  index.note(other, std::vector<int32_t>{0, 4}, 4, true, c);
  EXPECT_EQ(index.find(other).pages, (std::vector<int32_t>{0, 4}));
  EXPECT_EQ(index.find(first).tokens, 0);
}

/// The last page that is found has ids already, and there is none to copy it to.
TEST(FoundPages, ACacheOfOneSequenceGoesOnInTheLastPage) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, finding(3), lane), alone(*model, engine_options(3), lane);
  Backend backend(Device::cpu);
  const GenerateOptions options = generate_options(2);
  Request request = tiny_request(0, 38, 1);
  Generation generation(engine, options, nullptr), fresh(alone, options, nullptr);
  const auto play = [&](Generation& on, Request r) {
    on.add(std::move(r));
    std::vector<Generation::Finished> finished;
    while (finished.empty()) finished = on.step(backend.ctx());
    return finished.front().responses.front();
  };
  play(generation, request);
  for (int32_t i = 0; i < 5; ++i) request.prompt.push_back(7 + i);
  expect_alike(play(generation, request), play(fresh, request), "a longer prompt");
  EXPECT_EQ(generation.counters().rows_shared, 38);
}

TEST(FoundPages, AreForgottenBetweenGenerations) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, finding(64), lane);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(run(engine, {tiny_request(0, 40, 2)}, generate_options(5)).counters.rows_prefilled, 40);
}

/// A request's own options are those that it would have as the only one of a call.
TEST(RequestOptions, AreItsOwn) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(), lane);
  const GenerateOptions plain = generate_options(20);
  std::vector<GenerateOptions> owns(4, plain);
  owns[0].sampling.temperature = 0;
  owns[1].seed = 99;
  owns[1].max_new_tokens = 7;
  owns[2].sampling.frequency_penalty = 0.7;
  owns[2].logit_bias = {{3, 2.0}};
  owns[3].stop_token_ids = {11, 12, 13, 14, 15, 16, 17, 18};
  std::vector<Request> requests;
  for (size_t i = 0; i < 5; ++i) {
    requests.push_back(tiny_request(static_cast<int64_t>(i), 10 + 3 * static_cast<int64_t>(i), 2));
    if (i < owns.size()) requests[i].own = std::make_shared<const GenerateOptions>(owns[i]);
  }
  const Output mixed = run(engine, requests, plain);
  for (size_t i = 0; i < 5; ++i) {
    Request bare = requests[i];
    bare.own = nullptr;
    const Output single = run(engine, {bare}, i < owns.size() ? owns[i] : plain);
    for (size_t k = 0; k < 2; ++k)
      expect_alike(mixed.groups[i][k], single.groups[0][k], fmt::format("request {} sample {}", i, k));
  }
  EXPECT_EQ(mixed.groups[1][0].tokens.size(), 7u);
}

/// A request of no samples is scored, also one that fills the context, and nothing follows; cancelled it is
/// forgotten.
TEST(Generation, ScoresPromptsAlone) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, finding(64), lane);
  Backend backend(Device::cpu);
  const auto scores = [&](int64_t length, int32_t num_samples, bool cancels) {
    std::vector<PromptScore> got;
    int grown = 0;
    Generation generation(
        engine, generate_options(4), nullptr, [&](const Engine::Grown&) { ++grown; },
        [&](size_t, std::vector<PromptScore> all) { got = std::move(all); });
    Request r = tiny_request(0, length, num_samples);
    r.scores_prompt = true;
    const size_t number = generation.add(r);
    if (cancels) generation.cancel(number);
    std::vector<Generation::Finished> finished;
    while (!generation.done())
      for (Generation::Finished& f : generation.step(backend.ctx())) finished.push_back(std::move(f));
    EXPECT_EQ(finished.size(), cancels ? 0u : 1u);
    for (const Generation::Finished& f : finished)
      EXPECT_EQ(std::ssize(f.responses), num_samples) << "of " << length << " tokens";
    if (num_samples == 0) {
      EXPECT_EQ(grown, 0);
      EXPECT_EQ(generation.counters().rows_prefilled, cancels ? 0 : length);
      EXPECT_EQ(generation.counters().rows_shared + generation.counters().rows_generated, 0);
    }
    return got;
  };
  const std::vector<PromptScore> alone = scores(30, 0, false), sampled = scores(30, 2, false);
  ASSERT_EQ(alone.size(), 30u);
  for (size_t i = 1; i < 30; ++i) EXPECT_EQ(alone[i].logprob, sampled[i].logprob) << i;
  EXPECT_EQ(std::ssize(scores(engine.capacity(), 0, false)), engine.capacity());
  EXPECT_TRUE(scores(30, 0, true).empty());
}

/// A cancelled request leaves others as they are, gives its pages back, and nobody gets it.
TEST(Generation, ForgetsCancelledRequests) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(/*num_pages=*/12), lane);
  const std::vector<Request> requests{tiny_request(0, 20, 3), tiny_request(1, 40, 2), tiny_request(2, 7, 4)};
  const GenerateOptions options = generate_options(25);
  const Output together = run(engine, requests, options);
  Backend backend(Device::cpu);
  for (const int at : {0, 1, 2, 3, 9, 30, 1000}) {
    Generation generation(engine, options, nullptr);
    for (const Request& r : requests) generation.add(r);
    std::map<size_t, std::vector<Response>> got;
    for (int step = 0; !generation.done(); ++step) {
      if (step == at) generation.cancel(1);
      if (generation.done()) break;
      for (Generation::Finished& f : generation.step(backend.ctx())) got[f.request] = std::move(f.responses);
    }
    generation.cancel(1);  // has ended: nothing
    EXPECT_EQ(got.count(1), at == 1000 ? 1u : 0u) << at;
    for (const size_t i : {0, 2})
      for (size_t k = 0; k < got.at(i).size(); ++k)
        expect_alike(got.at(i)[k], together.groups[i][k], fmt::format("cut at {}, request {}", at, i));
  }
  EXPECT_EQ(run(engine, requests, options).counters.preemptions, together.counters.preemptions);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
