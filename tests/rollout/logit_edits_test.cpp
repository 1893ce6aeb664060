// Which logits are changed for a sequence: counts against counting from scratch, and the lists against the
// definitions.

#include "src/rollout/logit_edits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tests/support/random.h"

namespace temper {
namespace {

GenerateOptions all_options() {
  GenerateOptions o;
  o.sampling = {.repetition_penalty = 1.2, .frequency_penalty = 0.1, .presence_penalty = 0.1};
  o.min_new_tokens = 3;
  o.stop_token_ids = {9, 2, 9};
  o.logit_bias = {{2, 1.0}, {5, -4.0}, {40, 0.5}};
  return o;
}

bool same(const TokenCounts& a, const TokenCounts& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TokenCount& x, const TokenCount& y) {
    return x.id == y.id && x.in_response == y.in_response;
  });
}

/// What the definitions say of one id.
void expect_edit(const LogitEdit& e, const GenerateOptions& o, const std::vector<int32_t>& tokens,
                 int64_t prompt) {
  const auto response = tokens.begin() + prompt;
  const auto position = std::distance(response, tokens.end());
  EXPECT_EQ(e.count, std::count(response, tokens.end(), e.id)) << e.id;
  EXPECT_EQ(e.seen, std::count(tokens.begin(), tokens.end(), e.id) > 0) << e.id;
  const bool ends = std::count(o.stop_token_ids.begin(), o.stop_token_ids.end(), e.id) > 0;
  if (ends && position < o.min_new_tokens)
    EXPECT_EQ(e.bias, -INFINITY) << e.id;
  else
    EXPECT_EQ(e.bias, o.logit_bias.contains(e.id) ? o.logit_bias.at(e.id) : 0.0) << e.id;
}

TEST(LogitEdits, AreAFunctionOfTheTokens) {
  const GenerateOptions options = all_options();
  const LogitEdits edits(options);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<int32_t> tokens = random_ids(1 + static_cast<int64_t>(seed) % 9, 50, seed);
    const auto prompt = std::ssize(tokens);
    TokenCounts counts = edits.count(tokens, prompt);
    for (const int32_t next : random_ids(30, 50, 1000 + seed)) {
      const std::vector<LogitEdit> list = edits.at(counts, std::ssize(tokens) - prompt);
      std::set<int32_t> wanted(tokens.begin(), tokens.end());
      for (const auto& [id, bias] : options.logit_bias) wanted.insert(id);
      if (std::ssize(tokens) - prompt < 3) wanted.insert({2, 9});
      ASSERT_EQ(list.size(), wanted.size());
      auto id = wanted.begin();
      for (const LogitEdit& e : list) {
        ASSERT_EQ(e.id, *id++);
        expect_edit(e, options, tokens, prompt);
      }
      tokens.push_back(next);
      edits.count_next(counts, next);
      ASSERT_TRUE(same(counts, edits.count(tokens, prompt))) << "grown and counted from scratch";
    }
  }
}

TEST(LogitEdits, OnlyWhatAnOptionNeeds) {
  const std::vector<int32_t> tokens{7, 3, 7, 5, 5, 3};  // four of them are the prompt
  const auto ids = [&](const GenerateOptions& o, int64_t position) {
    const LogitEdits edits(o);
    std::vector<int32_t> list;
    for (const LogitEdit& e : edits.at(edits.count(tokens, 4), position)) list.push_back(e.id);
    return list;
  };
  using Ids = std::vector<int32_t>;
  GenerateOptions o;
  o.stop_token_ids = {8, 1};
  EXPECT_EQ(ids(o, 0), Ids{}) << "all options off";
  o.sampling.presence_penalty = 0.1;
  EXPECT_EQ(ids(o, 2), (Ids{3, 5})) << "the prompt does not count";
  o.sampling = {.frequency_penalty = -0.1};
  EXPECT_EQ(ids(o, 2), (Ids{3, 5}));
  o.sampling = {.repetition_penalty = 0.9};
  EXPECT_EQ(ids(o, 2), (Ids{3, 5, 7}));
  o.sampling = {};
  o.min_new_tokens = 2;
  EXPECT_EQ(ids(o, 1), (Ids{1, 8}));
  EXPECT_EQ(ids(o, 2), Ids{});
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
