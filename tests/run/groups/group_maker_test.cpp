// Groups in the making: the responses of the engine with their rewards, what a token budget or a stop leaves
// over, and what goes on from there.

#include "src/run/groups/group_maker.h"

#include <algorithm>

#include "tests/rollout/engine_run.h"

namespace temper {
namespace {

class GroupMakerTest : public ::testing::Test {
 protected:
  GroupMakerTest()
      : tokenizer_(Tokenizer::load("tests/golden/tokenizer/minimind")),
        vocab_(tokenizer_.vocab_size()),
        model_(tiny_model(DType::f32, vocab_)),
        engine_(*model_, engine_options(), lane_),
        rewards_({{{.name = "exact"}}}),
        backend_(Device::cpu) {
    options_ = generate_options(12, vocab_);
    options_.version = 3;
    for (const int64_t position : {4, 7}) {
      const Request request = tiny_request(position, 5 + position, kSamples, vocab_);
      whole_.push_back(run(engine_, {request}, options_, &tokenizer_).groups[0]);
      DrawnPrompt drawn{.position = position, .prompt = {}, .record = std::make_shared<Json>(Json::object())};
      drawn.prompt.tokens = request.prompt;
      drawn.prompt.answer = whole_.back()[1].text;
      work_.push_back({std::move(drawn)});
    }
  }

  GroupMaker maker(std::function<bool()> stops = [] { return false; }) {
    return {{backend_.ctx(), engine_, tokenizer_, rewards_, Team()}, options_, std::move(stops)};
  }
  static GroupMaker::Made all_of(GroupMaker& maker) {
    GroupMaker::Made all;
    while (!maker.done()) {
      GroupMaker::Made made = maker.next();
      for (Group& g : made.scored) all.scored.push_back(std::move(g));
      for (Group& g : made.left) all.left.push_back(std::move(g));
    }
    const auto by_position = [](const Group& a, const Group& b) {
      return a.samples[0].data_position < b.samples[0].data_position;
    };
    std::sort(all.scored.begin(), all.scored.end(), by_position);
    std::sort(all.left.begin(), all.left.end(), by_position);
    return all;
  }
  void expect_whole(const std::vector<Group>& groups) const {
    ASSERT_EQ(groups.size(), work_.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      ASSERT_EQ(groups[i].samples.size(), static_cast<size_t>(kSamples));
      for (size_t k = 0; k < groups[i].samples.size(); ++k) {
        const Trajectory& t = groups[i].samples[k];
        EXPECT_EQ(t.data_position, work_[i].drawn.position);
        EXPECT_EQ(t.response.tokens, whole_[i][k].tokens);
        EXPECT_EQ(t.response.text, whole_[i][k].text);
        EXPECT_EQ(t.raw_reward, whole_[i][k].text == whole_[i][1].text ? 1 : 0);
      }
    }
  }
  std::vector<PromptWork> begun_by(const std::vector<Group>& groups) const {
    std::vector<PromptWork> work;
    for (size_t i = 0; i < groups.size(); ++i) work.push_back({work_[i].drawn, groups[i]});
    return work;
  }

  static constexpr int32_t kSamples = 3;
  Tokenizer tokenizer_;
  int64_t vocab_;
  std::unique_ptr<Model> model_;
  Lane lane_;
  Engine engine_;
  RewardSet rewards_;
  Backend backend_;
  GenerateOptions options_;
  std::vector<PromptWork> work_;
  std::vector<std::vector<Response>> whole_;
};

TEST_F(GroupMakerTest, GroupsComeWithTheirRewards) {
  GroupMaker m = maker();
  for (const PromptWork& work : work_) m.add(work, kSamples);
  const GroupMaker::Made made = all_of(m);
  expect_whole(made.scored);
  EXPECT_TRUE(made.left.empty());
  EXPECT_FALSE(m.was_cut());
  EXPECT_GT(m.counters().rows_generated, 0);
  GroupMaker none = maker();
  EXPECT_TRUE(all_of(none).scored.empty());
}

/// What has all tokens of the call is left over as it is, whether it used them now or before a stop.
TEST_F(GroupMakerTest, TheBudgetOfACallIsUsedOnce) {
  options_.tokens_per_call = 5;
  GroupMaker first = maker();
  for (const PromptWork& work : work_) first.add(work, kSamples);
  const GroupMaker::Made made = all_of(first);
  EXPECT_TRUE(made.scored.empty());
  EXPECT_FALSE(first.was_cut()) << "by no stop";
  ASSERT_EQ(made.left.size(), 2u);
  GroupMaker again = maker();
  for (PromptWork& work : begun_by(made.left)) again.add(std::move(work), kSamples, /*after_stop=*/true);
  const GroupMaker::Made same = all_of(again);
  ASSERT_EQ(same.left.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    for (size_t k = 0; k < kSamples; ++k)
      EXPECT_EQ(same.left[i].samples[k].response.tokens, made.left[i].samples[k].response.tokens);
  EXPECT_EQ(again.counters().rows_recomputed, 0);
  options_.tokens_per_call = 0;
  options_.version = 4;
  GroupMaker last = maker();
  for (PromptWork& work : begun_by(same.left)) last.add(std::move(work), kSamples);
  expect_whole(all_of(last).scored);
}

/// After any number of engine steps; the rest is made afterwards.
TEST_F(GroupMakerTest, AStopLeavesTheRest) {
  for (const int steps : {0, 1, 5}) {
    int asked = 0;
    GroupMaker m = maker([&] { return asked++ == steps; });
    for (const PromptWork& work : work_) m.add(work, kSamples);
    const GroupMaker::Made made = all_of(m);
    EXPECT_TRUE(m.was_cut());
    EXPECT_TRUE(made.scored.empty());
    ASSERT_EQ(made.left.size(), 2u);
    EXPECT_EQ(made.left[0].samples[0].response.tokens.size(), static_cast<size_t>(steps));
    GroupMaker rest = maker();
    for (PromptWork& work : begun_by(made.left)) rest.add(std::move(work), kSamples, /*after_stop=*/true);
    expect_whole(all_of(rest).scored);
    // What is whole and lacks its rewards alone is scored.
    Group unscored = to_group(work_[0], whole_[0]);
    GroupMaker scoring = maker();
    scoring.add({work_[0].drawn, unscored}, kSamples, /*after_stop=*/true);
    scoring.add(work_[1], kSamples);
    expect_whole(all_of(scoring).scored);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
