// What is left of a session that met a limit: its reward and its tokens, by rollout.on_limit.

#include "src/run/groups/session_samples.h"

#include <gtest/gtest.h>

#include "src/rl/rewards/reward_set.h"

namespace temper {
namespace {

/// A session of two turns with an observation between them, as it is when it has its rewards.
Trajectory ended(EndReason reason, std::optional<double> reward, const std::string& on_limit) {
  static const HarnessConfig harness{.name = "game"};
  SessionHost::Ended one{.result = {.end = {.reason = reason, .reward = reward}}, .harness = &harness};
  one.result.samples.push_back({.prompt_tokens = {1, 2},
                                .response = {.tokens = {3, 4, 5, 6},
                                             .mask = {1, 0, 0, 1},
                                             .logprobs = {-1, 0, 0, -1},
                                             .versions = {{0, 4}},
                                             .text = "said",
                                             .finish = FinishReason::stop},
                                .turns = 2});
  std::vector<Trajectory> all = session_trajectories({}, one, on_limit);
  EXPECT_EQ(all.size(), 1u);
  RewardSet().score(all.front(), Json::object());
  return all.front();
}

TEST(OnLimit, RewardAndTokensOfASessionThatMetOne) {
  const std::vector<uint8_t> sampled{1, 0, 0, 1}, nothing(4, 0);
  // A limit of turns or tokens; one of time where the program had posted a reward, or on_error = "zero" gives
  // one.
  for (const EndReason reason : {EndReason::limit, EndReason::late}) {
    const Trajectory scored = ended(reason, 0.5, "score"), masked = ended(reason, 0.5, "mask"),
                     excluded = ended(reason, 0.5, "exclude");
    EXPECT_EQ(scored.response.mask, sampled);
    EXPECT_EQ(masked.response.mask, nothing);
    for (const Trajectory& t : {scored, masked}) {
      EXPECT_FALSE(t.excluded);
      EXPECT_EQ(t.reward, 0.5);
    }
    EXPECT_TRUE(excluded.excluded);
    EXPECT_EQ(excluded.reward, 0);
    EXPECT_EQ(excluded.session->end_reason, end_reason_name(reason));
  }
  for (const std::string on_limit : {"score", "mask", "exclude"}) {
    const Trajectory fine = ended(EndReason::done, 0.5, on_limit);
    EXPECT_EQ(fine.response.mask, sampled) << on_limit;
    EXPECT_FALSE(fine.excluded) << on_limit;
    EXPECT_TRUE(ended(EndReason::late, std::nullopt, on_limit).excluded) << on_limit;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
