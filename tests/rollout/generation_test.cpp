// Requests that come while others are at work, and generations that end before their requests do.

#include "tests/rollout/engine_run.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

/// Requests may come while others are at work: each gives the bits that it gives among all the others.
TEST(Generation, TakesRequestsBetweenSteps) {
  const auto model = tiny_model(DType::bf16);
  Lane lane;
  Engine engine(*model, engine_options(/*num_pages=*/12), lane);  // too few for all at full length
  const std::vector<Request> requests{tiny_request(0, 20, 3), tiny_request(1, 40, 2), tiny_request(2, 7, 4),
                                      tiny_request(3, 33, 1)};
  const GenerateOptions options = generate_options(30);
  const Output together = run(engine, requests, options);
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  for (const int64_t steps_between : {1, 5, 40, 1000}) {
    Generation generation(engine, options, nullptr);
    std::vector<std::vector<Response>> groups(requests.size());
    int64_t steps = 0;
    for (size_t added = 0; added < requests.size() || !generation.done(); ++steps) {
      if (added < requests.size() && (generation.done() || steps % steps_between == 0)) {
        EXPECT_EQ(generation.add(requests[added]), added);
        ++added;
      }
      for (Generation::Finished& f : generation.step(c)) groups.at(f.request) = std::move(f.responses);
    }
    EXPECT_GE(steps, 30);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(groups[i].size(), together.groups[i].size()) << i;
      for (size_t k = 0; k < groups[i].size(); ++k) {
        EXPECT_EQ(groups[i][k].tokens, together.groups[i][k].tokens) << steps_between << " " << i << " " << k;
        EXPECT_EQ(groups[i][k].logprobs, together.groups[i][k].logprobs) << i << " " << k;
      }
    }
    EXPECT_EQ(generation.counters().rows_prefilled, 20 + 40 + 7 + 33);
  }
}

/// A request that is refused leaves the others as they are; what is cut off in the middle gives its pages
/// back.
TEST(Generation, IsWholeWithoutItsEnd) {
  const auto model = tiny_model(DType::f32);
  Lane lane;
  Engine engine(*model, engine_options(/*num_pages=*/6), lane);
  const GenerateOptions options = generate_options(10);
  const Output alone = run(engine, {tiny_request(0, 20, 2)}, options);
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  {
    Generation cut(engine, options, nullptr);
    cut.add(tiny_request(1, 40, 3));
    cut.step(c);
    expect_error(Exit::internal, {"another generation"}, "two at once",
                 [&] { Generation second(engine, options, nullptr); });
  }
  Generation generation(engine, options, nullptr);
  EXPECT_TRUE(generation.done());
  EXPECT_EQ(generation.add(tiny_request(0, 20, 2)), 0u);
  generation.step(c);
  expect_error(Exit::data, {"prompt 5", "no tokens"}, "empty",
               [&] { generation.add(tiny_request(5, 0, 1)); });
  std::vector<Generation::Finished> finished;
  while (finished.empty()) finished = generation.step(c);
  EXPECT_TRUE(generation.done());
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].request, 0u);
  for (size_t k = 0; k < 2; ++k) EXPECT_EQ(finished[0].responses[k].tokens, alone.groups[0][k].tokens) << k;
}

void expect_same(const RolloutCounters& a, const RolloutCounters& b, const std::string& label) {
  EXPECT_EQ(a.rows_prefilled, b.rows_prefilled) << label;
  EXPECT_EQ(a.rows_shared, b.rows_shared) << label;
  EXPECT_EQ(a.rows_generated, b.rows_generated) << label;
  EXPECT_EQ(a.rows_recomputed, b.rows_recomputed) << label;
}

/// A call of a token budget that a stop cuts after any of its steps, and that goes on: its responses, their
/// versions and its counts are those of a call that nobody stopped.
class TokenBudget : public ::testing::TestWithParam<int64_t> {};

TEST_P(TokenBudget, AStopDoesNotRenewIt) {
  const auto model = tiny_model(DType::bf16);
  Lane lane;
  EngineOptions small = engine_options();
  small.scheduler.prefill_chunk_tokens = 9;  // going on takes several steps
  Engine engine(*model, small, lane);
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  GenerateOptions options = generate_options(10);
  options.tokens_per_call = 4;
  options.stop_token_ids = {3, 50, 51, 60};
  options.version = 7;
  std::vector<Request> requests{tiny_request(0, 5, 3), tiny_request(1, 20, 2), tiny_request(2, 11, 4)};
  const std::vector<std::vector<Response>> before = run(engine, requests, options).groups;
  for (size_t i = 0; i < requests.size(); ++i) requests[i].begun = before[i];
  requests.push_back(tiny_request(3, 17, 3));  // drawn in the second call
  options.version = GetParam();
  const Output whole = run(engine, requests, options);
  bool ended = false;
  for (int64_t steps = 0; !ended; ++steps) {
    const std::string label = fmt::format("cut after {} steps", steps);
    RolloutCounters counted;
    {
      std::vector<Request> stopped = requests;
      Generation generation(engine, options, nullptr);
      for (const Request& request : requests) generation.add(request);
      const auto keep = [&](std::vector<Generation::Finished> all) {
        for (Generation::Finished& f : all) stopped[f.request].begun = std::move(f.responses);
      };
      for (int64_t step = 0; step < steps && !generation.done(); ++step) keep(generation.step(c));
      ended = generation.done();
      keep(generation.cut(c));
      counted = generation.counters();
      Generation rest(engine, options, nullptr);
      std::map<size_t, size_t> which;
      for (size_t i = 0; i < stopped.size(); ++i) {
        stopped[i].after_stop = true;
        if (!open_samples(stopped[i], options).empty()) which[rest.add(stopped[i])] = i;
      }
      while (!rest.done())
        for (Generation::Finished& f : rest.step(c)) stopped[which[f.request]].begun = std::move(f.responses);
      add(counted, rest.counters());
      for (size_t i = 0; i < stopped.size(); ++i)
        for (size_t k = 0; k < stopped[i].begun.size(); ++k) {
          const Response &mine = stopped[i].begun[k], &wanted = whole.groups[i][k];
          EXPECT_EQ(mine.tokens, wanted.tokens) << label << " " << i << " " << k;
          EXPECT_EQ(mine.logprobs, wanted.logprobs) << label << " " << i << " " << k;
          EXPECT_EQ(mine.versions, wanted.versions) << label << " " << i << " " << k;
          EXPECT_EQ(mine.finish, wanted.finish) << label << " " << i << " " << k;
        }
    }
    expect_same(counted, whole.counters, label);
  }
}

/// With other weights than the call before, and with the same ones, as a policy lag has it.
INSTANTIATE_TEST_SUITE_P(Versions, TokenBudget, ::testing::Values(8, 7));

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
