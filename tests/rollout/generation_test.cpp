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

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
