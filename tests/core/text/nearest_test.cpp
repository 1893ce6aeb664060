#include "src/core/text/nearest.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

TEST(EditDistance, CountsInsertionsRemovalsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("steps", "steps"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("step", "steps"), 1u);
  EXPECT_EQ(edit_distance("steps", "sleps"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 2u);
  EXPECT_EQ(edit_distance("abcdef", "azced"), edit_distance("azced", "abcdef"));
}

TEST(NearestNames, AreAtMostThreeAndTheNearestFirst) {
  const std::vector<std::string> keys{"rollout.temperature", "rollout.top_p", "optimizer.lr"};
  EXPECT_EQ(nearest_names("rollout.temprature", keys).at(0), "rollout.temperature");
  EXPECT_EQ(nearest_names("train.lr", keys), std::vector<std::string>{"optimizer.lr"})
      << "the same key elsewhere";
  EXPECT_TRUE(nearest_names("something.else", keys).empty());
  EXPECT_TRUE(nearest_names("", keys).empty());
  EXPECT_TRUE(nearest_names(std::string(1000, 'x'), {std::string(1000, 'x')}).empty());
  EXPECT_EQ(nearest_names("run.stepz", {"run.seed", "run.steps"}), std::vector<std::string>{"run.steps"});
  EXPECT_EQ(nearest_names("steps", {"stop", "stepsize", "step", "stamps", "steep"}),
            (std::vector<std::string>{"step", "stop", "stamps"}));
  EXPECT_EQ(nearest_names("token", {"seq-mean", "token-mean"}), std::vector<std::string>{"token-mean"});
}

TEST(NearestNames, OfShortNamesDifferInOneByte) {
  const std::vector<std::string> names{"kl", "lr", "top_p", "top_k"};
  EXPECT_EQ(nearest_names("lx", names), std::vector<std::string>{"lr"});
  EXPECT_TRUE(nearest_names("zz", names).empty());
}

TEST(DidYouMean, ReadsAsAPartOfASentence) {
  EXPECT_EQ(did_you_mean("stes", {"steps"}), "; did you mean `steps`?");
  EXPECT_EQ(did_you_mean("top", {"top_p", "top_k"}, "", " "), "did you mean `top_p` or `top_k`? ");
  EXPECT_EQ(did_you_mean("top", {"top_p", "top_k", "tap"}), "; did you mean `tap`, `top_p` or `top_k`?");
  EXPECT_EQ(did_you_mean("zz", {"steps"}), "");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
