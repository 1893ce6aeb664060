// How prompts are dealt to rollout ranks and how a begun one becomes a request and a group again.

#include "src/run/groups/prompt_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace temper {
namespace {

PromptWork fresh(int64_t position, size_t prompt_tokens) {
  DrawnPrompt drawn;
  drawn.position = position;
  drawn.prompt.tokens.assign(prompt_tokens, 3);
  drawn.prompt.text = "p";
  drawn.prompt.answer = "a";
  return {std::move(drawn)};
}

Response response(size_t tokens, FinishReason finish) {
  return {.tokens = std::vector<int32_t>(tokens, 5),
          .mask = std::vector<uint8_t>(tokens, 1),
          .logprobs = std::vector<double>(tokens, -0.5),
          .versions = {{5, static_cast<int32_t>(tokens)}},
          .text = std::string(tokens, 't'),
          .finish = finish};
}

std::vector<int64_t> rows_by_rank(const std::vector<PromptWork>& work, const std::vector<int64_t>& rank,
                                  int64_t ranks, const std::vector<int64_t>& rows) {
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  for (size_t i = 0; i < work.size(); ++i) load[static_cast<size_t>(rank[i])] += rows[i];
  return load;
}

TEST(Deal, EqualPromptsInTurn) {
  const std::vector<PromptWork> work{fresh(0, 4), fresh(1, 4), fresh(2, 4), fresh(3, 4), fresh(4, 4)};
  EXPECT_EQ(deal(work, {.ranks = 3, .samples_per_prompt = 2, .max_new_tokens = 8}),
            (std::vector<int64_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(deal(work, {.ranks = 1, .max_new_tokens = 8}), (std::vector<int64_t>(5, 0)));
  EXPECT_EQ(deal({work[0]}, {.ranks = 4, .max_new_tokens = 8}), (std::vector<int64_t>{0}));
  EXPECT_TRUE(deal({}, {.ranks = 4}).empty());
}

/// The largest load is at most 4/3 of the smallest possible one (largest first).
TEST(Deal, LoadsAreEven) {
  std::vector<PromptWork> work;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 40; ++i) {
    work.push_back(fresh(i, static_cast<size_t>(1 + (i * 37) % 101)));
    rows.push_back(1 + (i * 37) % 101 + 2 * 6);
  }
  for (const int64_t ranks : {2, 3, 7}) {
    const std::vector<int64_t> load =
        rows_by_rank(work, deal(work, {ranks, 2, 100, /*tokens_per_step=*/6}), ranks, rows);
    const int64_t all = std::accumulate(load.begin(), load.end(), int64_t{0});
    EXPECT_EQ(all, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
    EXPECT_LT(*std::max_element(load.begin(), load.end()), 1.03 * static_cast<double>(all) / ranks) << ranks;
  }
}

/// A begun prompt costs its rows again, what its unfinished samples may still get, and nothing for finished
/// ones.
TEST(Deal, BegunPromptsCountWhatIsLeft) {
  PromptWork begun = fresh(0, 10);
  begun.before = to_group(begun, {response(50, FinishReason::unfinished), response(70, FinishReason::stop),
                                  response(50, FinishReason::unfinished)});
  // 10 + 2 x (50 + 20) = 150 rows; new ones have 10 + 3 x 20 = 70.
  const std::vector<PromptWork> work{fresh(1, 10), begun, fresh(2, 10), fresh(3, 10)};
  EXPECT_EQ(deal(work, {.ranks = 2, .samples_per_prompt = 3, .max_new_tokens = 100, .tokens_per_step = 20}),
            (std::vector<int64_t>{1, 0, 1, 1}))
      << "150 against 70 + 70 + 70";
  // Near the limit only the rest is left: 10 + 2 x (50 + 5).
  EXPECT_EQ(
      deal({begun, fresh(1, 10), fresh(2, 10)}, {.ranks = 2, .samples_per_prompt = 3, .max_new_tokens = 55}),
      (std::vector<int64_t>{0, 0, 1}))
      << "120 after 175 each for new ones";
}

TEST(PromptWork, GoesOnWhereItWas) {
  const PromptWork work = fresh(7, 3);
  Group group = to_group(work, {response(4, FinishReason::unfinished), response(2, FinishReason::stop)});
  EXPECT_FALSE(is_finished(group));
  const PromptWork again{work.drawn, group};
  const Request request = to_request(again, 8);
  EXPECT_EQ(request.num_samples, 2) << "as many as were begun";
  EXPECT_EQ(request.data_position, 7);
  ASSERT_EQ(request.begun.size(), 2u);
  EXPECT_EQ(request.begun[0].tokens.size(), 4u);
  EXPECT_EQ(request.begun[0].mask.size(), 4u);
  EXPECT_EQ(request.begun[0].text, "tttt");
  EXPECT_EQ(request.begun[0].versions, (std::vector<std::pair<int64_t, int32_t>>{{5, 4}}));
  EXPECT_EQ(request.begun[1].finish, FinishReason::stop);
  group = to_group(again, {response(9, FinishReason::length), request.begun[1]});
  EXPECT_TRUE(is_finished(group));
  EXPECT_EQ(group.samples[0].response.tokens.size(), 9u);
  EXPECT_EQ(group.samples[0].response.mask.size(), 9u);
  EXPECT_EQ(group.samples[1].response.versions, (std::vector<std::pair<int64_t, int32_t>>{{5, 2}}));
  EXPECT_EQ(group.samples[1].sample, 1);
  EXPECT_EQ(group.samples[1].data_position, 7);
  EXPECT_EQ(group.samples[1].prompt_tokens.size(), 3u);
  EXPECT_EQ(group.samples[1].prompt, "p");
  EXPECT_EQ(group.samples[1].answer, "a");
  EXPECT_TRUE(to_request(work, 8).begun.empty());
  EXPECT_EQ(to_request(work, 8).num_samples, 8);
}

TEST(PromptWork, UniformIsOfTheRawReward) {
  Group group = to_group(fresh(0, 1), {response(1, FinishReason::stop), response(2, FinishReason::stop)});
  group.samples[0].reward = 0.5;  // shaping does not count
  EXPECT_TRUE(is_uniform(group));
  group.samples[1].raw_reward = 1;
  EXPECT_FALSE(is_uniform(group));
  group.samples[0].excluded = true;
  EXPECT_TRUE(is_uniform(group)) << "one reward is left";
  EXPECT_EQ(shared_reward(group), 1);
  group.samples[0].excluded = false;
  group.samples.pop_back();
  EXPECT_TRUE(is_uniform(group));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
