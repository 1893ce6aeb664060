// What a stage adds: each field where it belongs, exact as bytes, and no damaged message read beyond its end.

#include "src/run/exchange/annotation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"

namespace temper {
namespace {

Trajectory two_tokens() {
  Trajectory t;
  t.response.tokens = {4, 5};
  return t;
}

TEST(Annotation, GoesToItsField) {
  Trajectory t = two_tokens();
  apply({7, 0, "ref_logprobs", {-1.5, -0.25}}, t);
  apply({7, 0, "teacher_logprobs", {-2, -0.5}}, t);
  apply({7, 0, "reward_parts/judge", {0.75}}, t);
  apply({7, 0, "reward_parts/a/b", {2}}, t);
  EXPECT_EQ(t.ref_logprobs, (std::vector<double>{-1.5, -0.25}));
  EXPECT_EQ(t.teacher_logprobs, (std::vector<double>{-2, -0.5}));
  EXPECT_EQ(t.reward_parts, (std::vector<std::pair<std::string, double>>{{"judge", 0.75}, {"a/b", 2}}));
}

TEST(Annotation, AnotherFieldOrNumberOfValuesIsABug) {
  const std::vector<std::pair<Annotation, const char*>> cases = {
      {{7, 0, "ref_logprob", {1, 2}}, "which no trajectory has"},
      {{7, 0, "ref_logprobs/x", {1, 2}}, "which no trajectory has"},
      {{7, 0, "", {}}, "which no trajectory has"},
      {{7, 0, "ref_logprobs", {1}}, "1 reference log-probs of 2 tokens"},
      {{7, 0, "teacher_logprobs", {1, 2, 3}}, "3 teacher log-probs of 2 tokens"},
      {{7, 0, "reward_parts/judge", {}}, "0 values of the reward part judge"}};
  for (const auto& [annotation, why] : cases) {
    Trajectory t = two_tokens();
    expect_error(Exit::internal, {why}, annotation.field, [&] { apply(annotation, t); });
    EXPECT_TRUE(t.ref_logprobs.empty() && t.reward_parts.empty()) << annotation.field;
  }
}

TEST(Annotation, ComesBackWithTheSameBits) {
  const std::vector<Annotation> sent = {{int64_t{1} << 50, 3, "ref_logprobs", {-0.1, 1.0 / 3, -0.0}},
                                        {0, 0, "reward_parts/x", {}},
                                        {2, 1, "reward_parts/\"y\"", {std::nan("")}}};
  const std::vector<Annotation> come = annotations_from_bytes(annotations_to_bytes(sent));
  ASSERT_EQ(come.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(come[i].data_position, sent[i].data_position);
    EXPECT_EQ(come[i].sample, sent[i].sample);
    EXPECT_EQ(come[i].field, sent[i].field);
    EXPECT_EQ(annotations_to_bytes({come[i]}), annotations_to_bytes({sent[i]}));
  }
  EXPECT_TRUE(annotations_from_bytes(annotations_to_bytes({})).empty());
}

TEST(Annotation, ADamagedMessageIsRefused) {
  const std::string good = annotations_to_bytes({{1, 0, "ref_logprobs", {1, 2, 3}}});
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(annotations_from_bytes(good.substr(0, size)), std::exception) << size;
  expect_error(Exit::internal, {"after the last annotation"}, "longer",
               [&] { annotations_from_bytes(good + "x"); });
  expect_error(Exit::internal, {"values announced"}, "a count beyond all memory",
               [] { annotations_from_bytes("[[1,0,\"ref_logprobs\",9000000000000000000]]\n12345678"); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
