// The reward functions, their options, and their weighted sum.

#include <gtest/gtest.h>

#include <cmath>

#include "src/core/check.h"
#include "src/core/text/answer_text.h"
#include "src/rl/registry.h"
#include "src/rl/rewards/reward_set.h"

namespace temper {
namespace {

const Json kNoRecord = Json::object();

double score(const Reward& reward, std::string_view response, std::string_view answer, int64_t tokens = 0) {
  return *reward
              .score({.response = response, .answer = answer, .response_tokens = tokens, .record = kNoRecord})
              .value;
}

TEST(Exact, StripsBothEnds) {
  auto reward = make_reward({.name = "exact"});
  EXPECT_EQ(score(*reward, " 42\n", "42"), 1);
  EXPECT_EQ(score(*reward, "42", "42 "), 1);
  EXPECT_EQ(score(*reward, "4 2", "42"), 0);
  EXPECT_EQ(score(*reward, "", "42"), 0);
  EXPECT_EQ(score(*reward, "42.", "42"), 0);
}

TEST(Arithmetic, LastInteger) {
  auto reward = make_reward({.name = "arithmetic"});
  EXPECT_EQ(score(*reward, "12+30=42", "42"), 1);
  EXPECT_EQ(score(*reward, " 42 \n", " 42"), 1);
  EXPECT_EQ(score(*reward, "5-12=-7", "-7"), 1);
  EXPECT_EQ(score(*reward, "-7", "-7"), 1);
  EXPECT_EQ(score(*reward, "= +7", "7"), 1);
  EXPECT_EQ(score(*reward, "12-5", "5"), 1);  // an operator, no sign
  EXPECT_EQ(score(*reward, "12-5", "-5"), 0);
  EXPECT_EQ(score(*reward, "007", "7"), 1);
  EXPECT_EQ(score(*reward, "-0", "0"), 1);
  EXPECT_EQ(score(*reward, "142", "42"), 0);
  EXPECT_EQ(score(*reward, "42.", "42"), 0);
  EXPECT_EQ(score(*reward, "42 apples", "42"), 0);
  EXPECT_EQ(score(*reward, "", "0"), 0);
  EXPECT_EQ(score(*reward, "-", "0"), 0);
  EXPECT_EQ(score(*reward, std::string(100, '9'), std::string(100, '9')), 1);
  EXPECT_EQ(score(*reward, std::string(100, '9'), std::string(99, '9')), 0);
  for (const char* answer : {"", "x", "4.5", "1 2", "1-2"}) {
    EXPECT_THROW(score(*reward, "1", answer), Error) << answer;
    EXPECT_THROW(reward->check_answer(answer, "f:1"), Error) << answer;
  }
}

TEST(Gsm8k, Strict) {
  auto reward = make_reward({.name = "gsm8k", .numbers = {{"format_score", 0.1}}});
  const std::string reference = "She has 7*6=<<7*6=42>>42.\n#### 1,042";
  EXPECT_EQ(score(*reward, "blah #### 1042", reference), 1);
  EXPECT_EQ(score(*reward, "#### 1,042", reference), 1);
  EXPECT_EQ(score(*reward, "#### 7 and #### 1042 dollars", reference), 1);  // the last mark counts
  EXPECT_EQ(score(*reward, "#### 1042 no, #### x", reference), 1);  // a mark without a number does not
  EXPECT_EQ(score(*reward, "#### 1042 no, #### 3", reference), 0.1);
  EXPECT_EQ(score(*reward, "#### -1042", reference), 0.1);
  EXPECT_EQ(score(*reward, "#### 1042.0", reference), 0.1);  // compared as text, as verl does
  EXPECT_EQ(score(*reward, "1042", reference), 0);
  EXPECT_EQ(score(*reward, "####1042", reference), 0);
  EXPECT_EQ(score(*reward, "#### $1042", reference), 0);
  EXPECT_EQ(score(*reward, "#### -", reference), 0);
  EXPECT_EQ(score(*reward, "", reference), 0);
  EXPECT_EQ(score(*reward, "#### -3", "-3"), 1);  // a reference without a mark is the number
  EXPECT_EQ(score(*reward, "#### 1042" + std::string(291, 'x'), reference), 1);
  EXPECT_EQ(score(*reward, "#### 1042" + std::string(292, 'x'), reference), 0);  // beyond 300 characters
  std::string accents;
  for (int i = 0; i < 291; ++i) accents += "\xC3\xA9";
  EXPECT_EQ(score(*reward, "#### 1042" + accents, reference), 1);  // characters, not bytes
  EXPECT_THROW(reward->check_answer(" ", "f:1"), Error);
}

TEST(Gsm8k, Flexible) {
  auto reward = make_reward({.name = "gsm8k", .numbers = {}, .strings = {{"method", "flexible"}}});
  EXPECT_EQ(score(*reward, "The answer is 1,042.", "#### 1042"), 1);
  EXPECT_EQ(score(*reward, "It is -3 ... , .", "#### -3"), 1);
  EXPECT_EQ(score(*reward, "3 then 4", "#### 3"), 0);
  EXPECT_EQ(score(*reward, "none, at all.", "#### 3"), 0);
  EXPECT_EQ(score(*reward, "$2.50", "2.50"), 1);
}

TEST(Math, BoxedAgainstTheReference) {
  auto reward = make_reward({.name = "math"});
  EXPECT_EQ(score(*reward, "thus \\boxed{\\frac12}", "\\frac{1}{2}"), 1);
  EXPECT_EQ(score(*reward, "thus \\boxed{0.5}", "we get \\boxed{\\frac{1}{2}}, done"), 1);
  EXPECT_EQ(score(*reward, "thus \\frac12", "\\frac{1}{2}"), 0);
  EXPECT_EQ(score(*reward, "\\boxed{}", "\\frac{1}{2}"), 0);
  EXPECT_EQ(score(*reward, "\\boxed{27}", "27.0"), 1);
  EXPECT_THROW(score(*reward, "\\boxed{1}", "$ $"), Error);
  EXPECT_THROW(reward->check_answer("", "f:1"), Error);
}

std::string any_of(std::initializer_list<Json> answers) {
  Json list = Json::array();
  for (const Json& answer : answers) list.push_back(answer);
  return answer_text(list);
}

/// An answer in which no response's number can be found again.
TEST(Gsm8k, UnmatchedAnswers) {
  const auto strict = make_reward({.name = "gsm8k", .numbers = {}}),
             flexible = make_reward({.name = "gsm8k", .numbers = {}, .strings = {{"method", "flexible"}}});
  for (const char* answer : {"7", "-1,042", "2.50", "So 6 * 7 = 42.\n#### 42"}) {
    EXPECT_EQ(strict->unmatched(answer), "") << answer;
    EXPECT_EQ(flexible->unmatched(answer), "") << answer;
  }
  for (const char* answer : {"many", "$18", "1/2", "-", "18 apples"}) {
    EXPECT_NE(strict->unmatched(answer), "") << answer;
    EXPECT_NE(flexible->unmatched(answer), "") << answer;
  }
  EXPECT_EQ(strict->unmatched("18."), "");
  EXPECT_NE(flexible->unmatched("18."), "") << "the full stop is no part of its number";
  EXPECT_EQ(flexible->unmatched(any_of({"many", "3"})), "");
  EXPECT_NE(flexible->unmatched(any_of({"many", "few"})), "");
}

TEST(ListOfAnswers, AnyIsRight) {
  auto exact = make_reward({.name = "exact"}), arithmetic = make_reward({.name = "arithmetic"}),
       gsm8k = make_reward({.name = "gsm8k", .numbers = {{"format_score", 0.1}}}),
       math = make_reward({.name = "math"});
  EXPECT_EQ(score(*exact, "no", any_of({"yes", "no"})), 1);
  EXPECT_EQ(score(*exact, "maybe", any_of({"yes", "no"})), 0);
  EXPECT_EQ(score(*exact, "4", any_of({3, 4})), 1);
  EXPECT_EQ(score(*exact, "[3,4]", any_of({3, 4})), 0);
  EXPECT_EQ(score(*exact, "[3,4]", answer_text("[3,4]")), 1);  // a text that looks like a list
  EXPECT_EQ(score(*arithmetic, "=4", any_of({3, 4})), 1);
  EXPECT_EQ(score(*arithmetic, "=5", any_of({3, 4})), 0);
  EXPECT_EQ(score(*gsm8k, "#### 4", any_of({"so #### 3", "4"})), 1);
  EXPECT_EQ(score(*gsm8k, "#### 5", any_of({3, 4})), 0.1);
  EXPECT_EQ(score(*math, "\\boxed{0.5}", any_of({"\\frac{1}{3}", "50\\%"})), 1);
  EXPECT_EQ(score(*math, "\\boxed{4}", any_of({3, 4.0})), 1);
  EXPECT_EQ(score(*math, "\\boxed{3,4}", any_of({3, 4})), 0);
  const Json refused[] = {Json::object({{"target", {1}}}), Json::array(), Json::array({Json::array({1})}),
                          Json::array({"1", nullptr})};
  for (const Json& value : refused)
    for (const Reward* reward : {exact.get(), arithmetic.get(), gsm8k.get(), math.get()}) {
      EXPECT_THROW(reward->check_answer(answer_text(value), "f:1"), Error) << value.dump();
      EXPECT_THROW(score(*reward, "1", answer_text(value)), Error) << value.dump();
    }
  EXPECT_THROW(math->check_answer(any_of({"1", ""}), "f:1"), Error);
  EXPECT_EQ(shown_answer(any_of({3, "4"})), "[3,\"4\"]");
  EXPECT_EQ(answer_text(true), "true");
  EXPECT_EQ(answer_text(nullptr), "");
}

TEST(Length, SoftOverlongPunishment) {
  auto reward = make_reward(
      {.name = "length", .numbers = {{"max_tokens", 20480}, {"buffer_tokens", 4096}, {"factor", 2}}});
  EXPECT_TRUE(reward->is_shaping());
  EXPECT_EQ(score(*reward, "", "", 0), 0);
  EXPECT_EQ(score(*reward, "", "", 16384), 0);
  EXPECT_EQ(score(*reward, "", "", 16385), -2.0 / 4096);
  EXPECT_EQ(score(*reward, "", "", 18432), -1);
  EXPECT_EQ(score(*reward, "", "", 20480), -2);
  EXPECT_EQ(score(*reward, "", "", 99999), -2);
}

RewardFunctionConfig length_config(double max_tokens, double buffer_tokens) {
  return {.name = "length", .numbers = {{"max_tokens", max_tokens}, {"buffer_tokens", buffer_tokens}}};
}

TEST(RewardSet, WeightedSumAndShaping) {
  RewardConfig config;
  config.functions = {
      {.name = "exact", .weight = 0.3}, length_config(10, 5), {.name = "arithmetic", .weight = 0.7}};
  config.functions[1].weight = 0.5;
  const RewardSet rewards(config);
  Trajectory t;
  t.response.text = "=42";
  t.answer = "42";
  t.response.tokens.resize(8);
  t.response.mask.assign(8, 1);
  rewards.score(t, kNoRecord);
  EXPECT_EQ(t.raw_reward, 0.0 + 0.3 * 0 + 0.7 * 1);
  EXPECT_EQ(t.reward, t.raw_reward + 0.5 * -0.6);
  const std::vector<std::pair<std::string, double>> parts{{"exact", 0}, {"length", -0.6}, {"arithmetic", 1}};
  EXPECT_EQ(t.reward_parts, parts);
  EXPECT_THROW(rewards.check_answer("many", "f:1"), Error);
  EXPECT_NO_THROW(rewards.check_answer("-3", "f:1"));
}

/// What a program says between turns costs a session nothing, however long it is.
TEST(RewardSet, LengthCountsWhatThePolicySampled) {
  const RewardSet rewards({.functions = {length_config(10, 5)}});
  Trajectory t;
  t.session.emplace().reward = 1;
  t.response.tokens.resize(100);
  t.response.mask.assign(100, 0);
  std::fill_n(t.response.mask.begin(), 3, uint8_t{1});
  std::fill_n(t.response.mask.rbegin(), 5, uint8_t{1});
  rewards.score(t, kNoRecord);
  EXPECT_EQ(t.raw_reward, 1);
  EXPECT_EQ(t.reward, 1 - 0.6);
}

void expect_error(const RewardConfig& config, Exit code, const std::string& part) {
  try {
    RewardSet rewards(config);
    Trajectory t;
    t.response.text = t.answer = "1";
    rewards.score(t, kNoRecord);
    FAIL() << "accepted, expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

RewardConfig one(RewardFunctionConfig function) { return {.functions = {std::move(function)}}; }

TEST(RewardSet, RefusesWrongConfigs) {
  auto named = [](std::string name) { return RewardFunctionConfig{.name = std::move(name)}; };
  expect_error({}, Exit::usage, "no reward function");
  expect_error(one(named("gsm8")), Exit::usage,
               "did you mean `gsm8k`? legal: exact, arithmetic, gsm8k, math, length");
  expect_error({.functions = {named("exact"), named("exact")}}, Exit::usage, "listed twice");
  RewardFunctionConfig f = named("gsm8k");
  f.numbers["formatscore"] = 1;
  expect_error(one(f), Exit::usage, "did you mean `format_score`? legal: method, format_score");
  f = named("gsm8k");
  f.strings["method"] = "loose";
  expect_error(one(f), Exit::usage, "legal: strict, flexible");
  f.strings.clear();
  f.numbers["method"] = 1;
  expect_error(one(f), Exit::usage, "is not text");
  f = named("gsm8k");
  f.strings["format_score"] = "0.1";
  expect_error(one(f), Exit::usage, "is not a number");
  f = named("exact");
  f.strings["case"] = "no";
  expect_error(one(f), Exit::usage, "legal: none");
  f = named("exact");
  f.weight = std::nan("");
  expect_error(one(f), Exit::usage, "illegal weight");
  expect_error(one(named("length")), Exit::usage, "needs max_tokens");
  expect_error(one(length_config(10, 11)), Exit::usage, "11 is not in [1, 10]");
  expect_error(one(length_config(10, 2.5)), Exit::usage, "whole number");
  f = named("exact");
  f.weight = 1e308;
  RewardFunctionConfig g = named("arithmetic");
  g.weight = 1e308;
  expect_error({.functions = {f, g}}, Exit::numerics, "not finite");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
